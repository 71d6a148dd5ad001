// Upper triangle of Z^T Z on FPGAs: one work-item drives an array of multipliers.
// Each table row sends TILE values along both sides of a tile of sums on chip; the
// ARRAY x ARRAY multipliers sweep over the tile, so that TILE * TILE / ARRAY^2 cycles
// pass until a sum is needed again, more than an adder's latency.
// Macros: REAL, BLOCK, DEPTH, RUN (see plan.py), DOUBLE where REAL is double.

#ifdef DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define TILE 64
#define ARRAY 8
#define SWEEP (TILE / ARRAY)
#define TILES (BLOCK / TILE)

// One tile: sums runs of rows in order, each by itself, as the GPU does.
void multiply_tile(__global const REAL *restrict table, __global REAL *restrict matrix,
                   const uint rows, const uint columns, const uint first_row,
                   const uint first_column, const uint first_chunk, const uint chunks)
{
    const uint end = min(rows, (first_chunk + chunks) * DEPTH);
    for (uint run = first_chunk * DEPTH; run < end; run += RUN) {
        const uint run_end = min(end, run + RUN);
        REAL sums[SWEEP][SWEEP][ARRAY][ARRAY];

        for (uint row = run; row < run_end; row++) {
            REAL left[TILE], above[TILE];
            #pragma unroll
            for (uint i = 0; i < TILE; i++) {
                const uint r = first_row + i, c = first_column + i;
                left[i] = r < columns ? table[(size_t)row * columns + r] : 0;
                above[i] = c < columns ? table[(size_t)row * columns + c] : 0;
            }
            #pragma ivdep
            for (uint step = 0; step < SWEEP * SWEEP; step++) {
                const uint v = step / SWEEP, h = step % SWEEP;
                #pragma unroll
                for (uint i = 0; i < ARRAY; i++) {
                    #pragma unroll
                    for (uint j = 0; j < ARRAY; j++) {
                        const REAL before = row == run ? 0 : sums[v][h][i][j];
                        sums[v][h][i][j] =
                            before + left[v * ARRAY + i] * above[h * ARRAY + j];
                    }
                }
            }
        }

        for (uint i = 0; i < TILE; i++) {
            #pragma unroll ARRAY
            for (uint j = 0; j < TILE; j++) {
                const uint r = first_row + i, c = first_column + j;
                const size_t cell = (size_t)r * columns + c;
                const REAL sum = sums[i / ARRAY][j / ARRAY][i % ARRAY][j % ARRAY];
                if (r < columns && c < columns)
                    matrix[cell] = (run > 0 ? matrix[cell] : 0) + sum;
            }
        }
    }
}

// Rows of a block, from the diagonal to the right edge.
void multiply_block(__global const REAL *restrict table, __global REAL *restrict matrix,
                    const uint rows, const uint columns, const uint block,
                    const uint first_chunk, const uint chunks)
{
    for (uint s = block * TILES; s < (block + 1) * TILES && s * TILE < columns; s++)
        for (uint t = s; t * TILE < columns; t++)
            multiply_tile(table, matrix, rows, columns, s * TILE, t * TILE,
                          first_chunk, chunks);
}

__attribute__((max_global_work_dim(0)))
__kernel void multiply(__global const REAL *restrict table,
                       __global REAL *restrict matrix,
                       const uint rows, const uint columns, const uint first_pair,
                       const uint pairs, const uint first_chunk, const uint chunks)
{
    const uint blocks = (columns + BLOCK - 1) / BLOCK;
    for (uint pair = first_pair; pair < first_pair + pairs; pair++) {
        const uint partner = blocks - 1 - pair;
        multiply_block(table, matrix, rows, columns, pair, first_chunk, chunks);
        if (partner != pair)
            multiply_block(table, matrix, rows, columns, partner, first_chunk, chunks);
    }
}
