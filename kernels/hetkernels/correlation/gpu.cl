// Upper triangle of Z^T Z on GPUs: tiles in local memory, blocks of results in registers.
// Macros: REAL, BLOCK, DEPTH, RUN (see plan.py), DOUBLE where REAL is double.

#ifdef DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define REAL4 double4
#else
#define REAL4 float4
#endif

// A group computes TILE x TILE results, each of its SIDE x SIDE work-items EACH x EACH.
#define TILE 64
#define SIDE 16
#define EACH 4
// Table rows in local memory at a time.
#define STAGE 16
#define TILES (BLOCK / TILE)

// Copies table rows [row, row + STAGE) of TILE columns into local memory, side by side;
// zeros beyond the table's edges.
void load_tile(__global const REAL *restrict table, __local REAL tile[STAGE][TILE],
               const uint row, const uint end, const uint first, const uint columns)
{
    const uint item = get_local_id(1) * SIDE + get_local_id(0);
    for (uint i = item; i < STAGE * TILE; i += SIDE * SIDE) {
        const uint r = row + i / TILE, c = first + i % TILE;
        const bool inside = r < end && c < columns;
        tile[i / TILE][i % TILE] = inside ? table[(size_t)r * columns + c] : 0;
    }
}

// Four neighbouring cells of a row of the matrix; zeros beyond its edges.
REAL4 load_cells(__global const REAL *matrix, const uint row, const uint column,
                 const uint columns)
{
    REAL cells[EACH];
    for (uint j = 0; j < EACH; j++) {
        const bool inside = row < columns && column + j < columns;
        cells[j] = inside ? matrix[(size_t)row * columns + column + j] : 0;
    }
    return vload4(0, cells);
}

void store_cells(__global REAL *matrix, const uint row, const uint column,
                 const uint columns, const REAL4 value)
{
    REAL cells[EACH];
    vstore4(value, 0, cells);
    for (uint j = 0; j < EACH; j++)
        if (row < columns && column + j < columns)
            matrix[(size_t)row * columns + column + j] = cells[j];
}

// Group (t, s, p): tile t along the folded pair of blocks first_pair + p, tile row s.
__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))
void multiply(__global const REAL *restrict table, __global REAL *restrict matrix,
              const uint rows, const uint columns, const uint first_pair,
              const uint first_chunk, const uint chunks)
{
    __local REAL left[STAGE][TILE], above[STAGE][TILE];
    const uint x = get_local_id(0), y = get_local_id(1);

    // The folded row holds block `pair` up to the right edge, then its partner.
    const uint blocks = (columns + BLOCK - 1) / BLOCK;
    const uint pair = first_pair + get_group_id(2);
    const uint partner = blocks - 1 - pair;
    const uint along = get_group_id(0);
    const uint length = (blocks - pair) * TILES;
    const bool second = along >= length;
    const uint block = second ? partner : pair;
    const uint first_row = (block * TILES + get_group_id(1)) * TILE;
    const uint first_column = (block * TILES + (second ? along - length : along)) * TILE;

    // Nothing to do below the diagonal, for the middle block's double, past the edge.
    const bool idle = first_column < first_row || (second && partner == pair)
                   || first_row >= columns || first_column >= columns;
    const uint begin = first_chunk * DEPTH;
    const uint end = idle ? begin : min(rows, begin + chunks * DEPTH);

    // This work-item's results: rows `mine_down` + i, columns `mine_across` + j.
    const uint mine_down = first_row + y * EACH;
    const uint mine_across = first_column + x * EACH;
    REAL4 total[EACH];
    for (uint i = 0; i < EACH; i++)
        total[i] = idle || first_chunk == 0
                 ? (REAL4)(0)
                 : load_cells(matrix, mine_down + i, mine_across, columns);

    for (uint run = begin; run < end; run += RUN) {
        const uint run_end = min(end, run + RUN);
        REAL4 sum[EACH];
        for (uint i = 0; i < EACH; i++)
            sum[i] = 0;

        for (uint row = run; row < run_end; row += STAGE) {
            barrier(CLK_LOCAL_MEM_FENCE);
            load_tile(table, left, row, run_end, first_row, columns);
            load_tile(table, above, row, run_end, first_column, columns);
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint k = 0; k < STAGE; k++) {
                const REAL4 a = vload4(y, left[k]);
                const REAL4 b = vload4(x, above[k]);
                sum[0] += a.x * b;
                sum[1] += a.y * b;
                sum[2] += a.z * b;
                sum[3] += a.w * b;
            }
        }
        for (uint i = 0; i < EACH; i++)
            total[i] += sum[i];
    }

    if (!idle)
        for (uint i = 0; i < EACH; i++)
            store_cells(matrix, mine_down + i, mine_across, columns, total[i]);
}
