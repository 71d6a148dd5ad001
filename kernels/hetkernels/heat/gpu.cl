// Heat on a GPU: a work-group advances one tile by up to HALO time steps.
//
// The group reads its tile with a border of HALO cells, steps it in registers and
// local memory, and writes the inner part, whose cells saw only true neighbours.
// Each work-item holds a column of CELLS cells in registers, so that only the
// neighbours to the left and right go through local memory; work-items next to each
// other hold columns next to each other: global and local access is coalesced.
//
// Defines: TILE (cells of a tile's side, also the group's width), CELLS, HALO.

#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(TILE, TILE / CELLS, 1)))
void heat_steps(__global const float *restrict source,
                __global float *restrict target,
                const int rows, const int columns,
                const float alpha, const int insulated, const int steps)
{
    __local float tile[TILE][TILE];
    float cell[CELLS];

    const int inner = TILE - 2 * HALO;
    const int x = get_local_id(0);
    const int y = get_local_id(1) * CELLS;
    const int column = (int)get_group_id(0) * inner - HALO + x;
    const int first = (int)get_group_id(1) * inner - HALO + y;

    // Beyond the grid any value will do: the edges never look there.
    const int near_column = clamp(column, 0, columns - 1);
    #pragma unroll
    for (int k = 0; k < CELLS; k++) {
        const size_t row = clamp(first + k, 0, rows - 1);
        cell[k] = source[row * columns + near_column];
    }

    for (int step = 0; step < steps; step++) {
        #pragma unroll
        for (int k = 0; k < CELLS; k++)
            tile[y + k][x] = cell[k];
        barrier(CLK_LOCAL_MEM_FENCE);

        float above = tile[max(y - 1, 0)][x];
        const float below = tile[min(y + CELLS, TILE - 1)][x];
        #pragma unroll
        for (int k = 0; k < CELLS; k++) {
            const int row = first + k;
            const float here = cell[k];
            const float next = k + 1 < CELLS ? cell[min(k + 1, CELLS - 1)] : below;
            const float up = row <= 0 ? here : above;
            const float down = row >= rows - 1 ? here : next;
            const float left = column <= 0 ? here : tile[y + k][max(x - 1, 0)];
            const float right =
                column >= columns - 1 ? here : tile[y + k][min(x + 1, TILE - 1)];
            const float around = (up + down) + (left + right);
            const float after = here + alpha * (around - 4.0f * here);
            const int edge = row <= 0 || row >= rows - 1
                          || column <= 0 || column >= columns - 1;
            cell[k] = edge && !insulated ? here : after;
            above = here;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    if (x < HALO || x >= TILE - HALO || column >= columns)
        return;
    #pragma unroll
    for (int k = 0; k < CELLS; k++) {
        const int row = first + k;
        if (y + k >= HALO && y + k < TILE - HALO && row < rows)
            target[(size_t)row * columns + column] = cell[k];
    }
}
