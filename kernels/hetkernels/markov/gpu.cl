// Power iteration x <- x P on GPUs. One step is two or three kernels:
//   dense_products, column_sums, conclude   (dense)
//   sparse_columns, changes, conclude       (sparse)
// No kernel changes anything once status[1] is set: strips may overshoot.
// Macros: REAL, CHUNK, BLOCK (see layout.py), COLUMNS (see opencl.py), DOUBLE where REAL is double.

#ifdef DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
// The same bits as on the other kinds: no fused multiply-add.
#pragma OPENCL FP_CONTRACT OFF

// Adds the upper half of `lanes` to the lower until lanes[0] holds the sum.
// All work-items of the group call it.
void fold(__local REAL *lanes, const uint lane)
{
    for (uint half_size = BLOCK / 2; half_size > 0; half_size >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_size)
            lanes[lane] += lanes[lane + half_size];
    }
}

// Group (g, c) sums x[i] * matrix[i][j] over rows i of chunk c for BLOCK columns j.
// Neighbouring work-items read neighbouring columns; x is shared in local memory.
__kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void dense_products(__global const REAL *restrict matrix,
                    __global const REAL *restrict pair,
                    __global const int *restrict status,
                    __global REAL *restrict partial, const uint n)
{
    __local REAL weights[CHUNK];
    const uint lane = get_local_id(0);
    const uint column = get_group_id(0) * BLOCK + lane;
    const uint chunk = get_group_id(1);
    const uint first = chunk * CHUNK;
    const uint rows = status[1] ? 0 : min((uint)CHUNK, n - first);
    __global const REAL *x = pair + (size_t)(status[0] & 1) * n;

    for (uint i = lane; i < rows; i += BLOCK)
        weights[i] = x[first + i];
    barrier(CLK_LOCAL_MEM_FENCE);

    if (rows > 0 && column < n) {
        __global const REAL *cell = matrix + (size_t)first * n + column;
        REAL sum = 0;
        #pragma unroll 8
        for (uint i = 0; i < rows; i++)
            sum += weights[i] * cell[(size_t)i * n];
        partial[(size_t)chunk * n + column] = sum;
    }
}

// y[j] = sum of the chunks of column j; sums[g] = change over the group's columns.
__kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void column_sums(__global REAL *restrict pair, __global const int *restrict status,
                 __global const REAL *restrict partial, __global REAL *restrict sums,
                 const uint n)
{
    __local REAL change[BLOCK];
    const uint lane = get_local_id(0);
    const uint column = get_global_id(0);
    const uint chunks = (n + CHUNK - 1) / CHUNK;
    const size_t now = (size_t)(status[0] & 1) * n;
    const size_t next = n - now;
    const bool live = !status[1];

    change[lane] = 0;
    if (live && column < n) {
        REAL y = 0;
        for (uint chunk = 0; chunk < chunks; chunk++)
            y += partial[(size_t)chunk * n + column];
        pair[next + column] = y;
        change[lane] = fabs(y - pair[now + column]);
    }
    fold(change, lane);
    if (live && lane == 0)
        sums[get_group_id(0)] = change[0];
}

// Entries whose products a group holds in local memory at a time.
#define WINDOW 1024

// A group computes COLUMNS neighbouring columns of P, whose entries lie in one run. All
// its work-items load a window of that run side by side and multiply; then one work-item
// a column adds up, in order, its part of the window.
__kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void sparse_columns(__global const uint *restrict offsets,
                    __global const uint *restrict rows,
                    __global const REAL *restrict values,
                    __global REAL *restrict pair,
                    __global const int *restrict status, const uint n)
{
    __local REAL products[WINDOW];
    const uint lane = get_local_id(0);
    const uint first = get_group_id(0) * COLUMNS;
    const uint column = first + lane;
    const bool mine = lane < COLUMNS && column < n;
    const size_t now = (size_t)(status[0] & 1) * n;
    const uint start = offsets[first];
    const uint stop = status[1] ? start : offsets[min(first + COLUMNS, n)];
    uint next = mine ? offsets[column] : 0;
    const uint end = mine ? offsets[column + 1] : 0;

    REAL sum = 0;
    for (uint window = start; window < stop; window += WINDOW) {
        const uint length = min((uint)WINDOW, stop - window);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = lane; k < length; k += BLOCK)
            products[k] = values[window + k] * pair[now + rows[window + k]];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (; next < min(end, window + length); next++)
            sum += products[next - window];
    }
    if (mine && !status[1])
        pair[n - now + column] = sum;
}

// sums[g] = change over the group's states.
__kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void changes(__global const REAL *restrict pair, __global const int *restrict status,
             __global REAL *restrict sums, const uint n)
{
    __local REAL change[BLOCK];
    const uint lane = get_local_id(0);
    const uint state = get_global_id(0);

    change[lane] = 0;
    if (state < n)
        change[lane] = fabs(pair[n + state] - pair[state]);
    fold(change, lane);
    if (!status[1] && lane == 0)
        sums[get_group_id(0)] = change[0];
}

// One group: sums the changes of all blocks, counts the step, notes convergence.
__kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void conclude(__global const REAL *restrict sums, __global int *restrict status,
              __global REAL *restrict residual, const uint blocks,
              const REAL tolerance)
{
    __local REAL lanes[BLOCK];
    const uint lane = get_local_id(0);

    REAL sum = 0;
    for (uint block = lane; block < blocks; block += BLOCK)
        sum += sums[block];
    lanes[lane] = sum;
    fold(lanes, lane);
    // Only the work-item that writes status reads it: the barriers order local memory alone.
    if (lane == 0 && !status[1]) {
        residual[0] = lanes[0];
        status[0] += 1;
        status[1] = lanes[0] <= tolerance;
    }
}
