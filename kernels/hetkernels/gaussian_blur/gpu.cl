// Gaussian blur on a GPU: first down the columns into `sums`, then along the rows.
//
// A work-group sums a tile. It takes the weights in chunks of CHUNK pairs, and for each
// chunk reads the pixels before and after the tile's that the chunk needs into local
// memory, so that local memory does not grow with the radius. Work-items next to each
// other read and write pixels next to each other: access is coalesced in both passes.
//
// Defines: PIXEL (type of the image), ROUNDED (whether it is an integer), WIDTH x HEIGHT (size of
// a group), EACH (pixels of a work-item), CHUNK.

#pragma OPENCL FP_CONTRACT OFF

// No saturation: the weights add up to 1, so sums stay in the range of the pixels but
// for an error far below a half, which rounding removes.
#if ROUNDED
#define CONVERT(sum) ((PIXEL)rint(sum))
#else
#define CONVERT(sum) (sum)
#endif

#define TALL (HEIGHT * EACH)
#define WIDE (WIDTH * EACH)

// The index inside 0..length-1 that the mirrored image has at `index`.
int mirrored(const int index, const int length)
{
    // Mirrored, -1 is 0 and -2 is 1. Unsigned: twice the length may exceed an int.
    const uint period = 2u * (uint)length;
    const uint at = (uint)(index < 0 ? -1 - index : index) % period;
    return (int)min(at, period - 1 - at);
}

__kernel __attribute__((reqd_work_group_size(WIDTH, HEIGHT, 1)))
void blur_down(__global const PIXEL *restrict image, __global float *restrict sums,
               __constant float *weights, const int reach,
               const int rows, const int columns, const int top, const int count)
{
    __local float before[TALL + CHUNK - 1][WIDTH];
    __local float after[TALL + CHUNK - 1][WIDTH];
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    const int column = get_global_id(0);
    const int near_column = min(column, columns - 1);
    const int down = (int)get_group_id(1) * TALL;
    const int first = top + down;
    const size_t plane = get_global_id(2);
    __global const PIXEL *pixels = image + plane * rows * columns;

    float sum[EACH];
    #pragma unroll
    for (int m = 0; m < EACH; m++) {
        const size_t row = mirrored(first + y + m * HEIGHT, rows);
        sum[m] = weights[0] * (float)pixels[row * columns + near_column];
    }
    for (int start = 1; start <= reach; start += CHUNK) {
        for (int j = y; j < TALL + CHUNK - 1; j += HEIGHT) {
            const size_t above = mirrored(first - start - CHUNK + 1 + j, rows);
            const size_t below = mirrored(first + start + j, rows);
            before[j][x] = pixels[above * columns + near_column];
            after[j][x] = pixels[below * columns + near_column];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int pairs = min(CHUNK, reach - start + 1);
        for (int k = 0; k < pairs; k++) {
            const float weight = weights[start + k];
            #pragma unroll
            for (int m = 0; m < EACH; m++) {
                const int j = y + m * HEIGHT;
                sum[m] += weight * (before[j + CHUNK - 1 - k][x] + after[j + k][x]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    #pragma unroll
    for (int m = 0; m < EACH; m++) {
        const int row = down + y + m * HEIGHT;
        if (row < count && column < columns)
            sums[(plane * count + row) * columns + column] = sum[m];
    }
}

__kernel __attribute__((reqd_work_group_size(WIDTH, HEIGHT, 1)))
void blur_along(__global const float *restrict sums, __global PIXEL *restrict blurred,
                __constant float *weights, const int reach,
                const int rows, const int columns, const int top, const int count)
{
    __local float before[HEIGHT][WIDE + CHUNK - 1];
    __local float after[HEIGHT][WIDE + CHUNK - 1];
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    const int first = (int)get_group_id(0) * WIDE;
    const int row = get_global_id(1);
    const size_t plane = get_global_id(2);
    __global const float *line =
        sums + (plane * count + min(row, count - 1)) * columns;

    float sum[EACH];
    #pragma unroll
    for (int m = 0; m < EACH; m++)
        sum[m] = weights[0] * line[mirrored(first + x + m * WIDTH, columns)];
    for (int start = 1; start <= reach; start += CHUNK) {
        for (int j = x; j < WIDE + CHUNK - 1; j += WIDTH) {
            before[y][j] = line[mirrored(first - start - CHUNK + 1 + j, columns)];
            after[y][j] = line[mirrored(first + start + j, columns)];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int pairs = min(CHUNK, reach - start + 1);
        for (int k = 0; k < pairs; k++) {
            const float weight = weights[start + k];
            #pragma unroll
            for (int m = 0; m < EACH; m++) {
                const int j = x + m * WIDTH;
                sum[m] += weight * (before[y][j + CHUNK - 1 - k] + after[y][j + k]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    #pragma unroll
    for (int m = 0; m < EACH; m++) {
        const int column = first + x + m * WIDTH;
        if (row < count && column < columns)
            blurred[(plane * rows + top + row) * columns + column] = CONVERT(sum[m]);
    }
}
