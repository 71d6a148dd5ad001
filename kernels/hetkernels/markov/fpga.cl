// Power iteration x <- x P on FPGAs: one work-item, one launch for a whole strip.
//   dense_steps    streams the matrix row by row past a tile of column sums on chip
//   sparse_steps   streams the entries onto the chip, then sums GROUP columns in turn
// Macros: REAL, CHUNK, BLOCK (see layout.py), DOUBLE where REAL is double.

#ifdef DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
// The same bits as on the other kinds: no fused multiply-add.
#pragma OPENCL FP_CONTRACT OFF

// Columns whose sums are kept on chip: a multiple of BLOCK.
#define TILE 1024
// Multipliers side by side; TILE / WIDTH cycles pass until a sum is needed again,
// more than an adder's latency.
#define WIDTH 16
// Sparse columns summed in turn: GROUP cycles pass until a sum is needed again.
#define GROUP 16
// Entries whose products are kept on chip.
#define WINDOW 1024

// Adds the upper half of `lanes` to the lower until one is left.
REAL fold(REAL *lanes)
{
    for (uint half_size = BLOCK / 2; half_size > 0; half_size >>= 1) {
        #pragma ivdep
        for (uint i = 0; i < half_size; i++)
            lanes[i] += lanes[i + half_size];
    }
    return lanes[0];
}

// Shift-register accumulator: each call adds to the oldest of BLOCK sums, so an adder
// has BLOCK cycles to finish and the loop around it starts an iteration each cycle.
void push(REAL *lanes, const REAL value)
{
    const REAL sum = lanes[0] + value;
    #pragma unroll
    for (uint i = 0; i < BLOCK - 1; i++)
        lanes[i] = lanes[i + 1];
    lanes[BLOCK - 1] = sum;
}

// Total of what was pushed: turns the register until lane 0 is first again.
REAL total_change(REAL *lanes, const uint pushed)
{
    for (uint i = pushed; i % BLOCK != 0; i++)
        push(lanes, 0);
    return fold(lanes);
}

__attribute__((max_global_work_dim(0)))
__kernel void dense_steps(__global const REAL *restrict matrix,
                          __global REAL *restrict pair,
                          __global int *restrict status,
                          __global REAL *restrict residual,
                          const uint n, const uint count, const REAL tolerance)
{
    const uint blocks = (n + BLOCK - 1) / BLOCK;
    int done = status[0];
    int converged = status[1];

    for (uint step = 0; step < count && !converged; step++) {
        const size_t now = (size_t)(done & 1) * n;
        const size_t next = n - now;
        REAL lanes[BLOCK];
        #pragma unroll
        for (uint i = 0; i < BLOCK; i++)
            lanes[i] = 0;

        for (uint first = 0; first < n; first += TILE) {
            const uint columns = min((uint)TILE, n - first);
            const uint vectors = (columns + WIDTH - 1) / WIDTH;
            REAL chunk_sum[TILE / WIDTH][WIDTH];
            REAL total[TILE / WIDTH][WIDTH];

            for (uint row = 0; row < n; row++) {
                const REAL weight = pair[now + row];
                const bool opens = row % CHUNK == 0;
                const bool closes = row % CHUNK == CHUNK - 1 || row == n - 1;
                __global const REAL *cell = matrix + (size_t)row * n + first;
                #pragma ivdep
                for (uint v = 0; v < vectors; v++) {
                    #pragma unroll
                    for (uint l = 0; l < WIDTH; l++) {
                        const uint column = v * WIDTH + l;
                        const REAL entry = column < columns ? cell[column] : 0;
                        const REAL before = opens ? 0 : chunk_sum[v][l];
                        const REAL sum = before + weight * entry;
                        chunk_sum[v][l] = sum;
                        if (closes)
                            total[v][l] = (row < CHUNK ? 0 : total[v][l]) + sum;
                    }
                }
            }

            for (uint block = 0; block < columns; block += BLOCK) {
                REAL change[BLOCK];
                #pragma ivdep
                for (uint i = 0; i < BLOCK; i++) {
                    const uint column = block + i;
                    change[i] = 0;
                    if (column < columns) {
                        const REAL y = total[column / WIDTH][column % WIDTH];
                        change[i] = fabs(y - pair[now + first + column]);
                        pair[next + first + column] = y;
                    }
                }
                push(lanes, fold(change));
            }
        }

        const REAL changed = total_change(lanes, blocks);
        residual[0] = changed;
        converged = changed <= tolerance;
        done++;
    }
    status[0] = done;
    status[1] = converged;
}

// Sums of the products of columns [first, first + GROUP), each in order. The entries of
// all these columns are one run, streamed through a window on chip.
void group_sums(__global const uint *restrict offsets, __global const uint *restrict rows,
                __global const REAL *restrict values, __global const REAL *x,
                const uint first, const uint n, REAL *sums)
{
    uint bounds[GROUP + 1];
    for (uint c = 0; c <= GROUP; c++)
        bounds[c] = offsets[min(first + c, n)];
    #pragma unroll
    for (uint c = 0; c < GROUP; c++)
        sums[c] = 0;

    for (uint window = bounds[0]; window < bounds[GROUP]; window += WINDOW) {
        const uint end = min(window + WINDOW, bounds[GROUP]);
        REAL products[WINDOW];
        for (uint k = window; k < end; k++)
            products[k - window] = values[k] * x[rows[k]];

        uint longest = 0;
        for (uint c = 0; c < GROUP; c++) {
            // The part of the column in the window; empty if the column lies beside it.
            const uint from = clamp(bounds[c], window, end);
            const uint to = clamp(bounds[c + 1], window, end);
            longest = max(longest, to - from);
        }
        for (uint turn = 0; turn < longest; turn++) {
            #pragma ivdep
            for (uint c = 0; c < GROUP; c++) {
                const uint k = max(bounds[c], window) + turn;
                if (k < min(bounds[c + 1], end))
                    sums[c] += products[k - window];
            }
        }
    }
}

__attribute__((max_global_work_dim(0)))
__kernel void sparse_steps(__global const uint *restrict offsets,
                           __global const uint *restrict rows,
                           __global const REAL *restrict values,
                           __global REAL *restrict pair,
                           __global int *restrict status,
                           __global REAL *restrict residual,
                           const uint n, const uint count, const REAL tolerance)
{
    const uint blocks = (n + BLOCK - 1) / BLOCK;
    int done = status[0];
    int converged = status[1];

    for (uint step = 0; step < count && !converged; step++) {
        const size_t now = (size_t)(done & 1) * n;
        const size_t next = n - now;
        REAL lanes[BLOCK];
        #pragma unroll
        for (uint i = 0; i < BLOCK; i++)
            lanes[i] = 0;

        for (uint block = 0; block < blocks; block++) {
            const uint first = block * BLOCK;
            REAL change[BLOCK];
            for (uint group = 0; group < BLOCK; group += GROUP) {
                REAL sums[GROUP];
                group_sums(offsets, rows, values, pair + now, first + group, n, sums);
                #pragma ivdep
                for (uint c = 0; c < GROUP; c++) {
                    const uint column = first + group + c;
                    change[group + c] = 0;
                    if (column < n) {
                        change[group + c] = fabs(sums[c] - pair[now + column]);
                        pair[next + column] = sums[c];
                    }
                }
            }
            push(lanes, fold(change));
        }

        const REAL changed = total_change(lanes, blocks);
        residual[0] = changed;
        converged = changed <= tolerance;
        done++;
    }
    status[0] = done;
    status[1] = converged;
}
