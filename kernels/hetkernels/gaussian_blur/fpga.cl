// Gaussian blur on an FPGA: one work-item streams the image, VECTOR pixels a cycle.
//
// Line buffers keep the last 2 * REACH rows; the column of pixels through them is summed
// at once, and the sums enter a shift register, which is summed along the row at once. So
// each pixel is read once, but for the rows before a strip and the columns beside a block.
//
// Line buffers have a constant length: a wider image is streamed in blocks of columns,
// with SIDE vectors more on both sides. The radius is a run-time value of up to REACH,
// so that one bitstream serves many. Up to UNROLL pairs are added in a cycle (2 * UNROLL *
// VECTOR multipliers): beyond that radius, a vector takes several cycles.
//
// Defines: PIXEL (type of the image), ROUNDED (whether it is an integer), VECTOR, REACH,
// UNROLL, SIDE (vectors that hold REACH pixels), INNER (vectors of a block without its sides).

#pragma OPENCL FP_CONTRACT OFF

// No saturation: the weights add up to 1, so sums stay in the range of the pixels but
// for an error far below a half, which rounding removes.
#if ROUNDED
#define CONVERT(sum) ((PIXEL)rint(sum))
#else
#define CONVERT(sum) (sum)
#endif

#define BLOCK (INNER + 2 * SIDE)
#define WINDOW ((2 * SIDE + 1) * VECTOR)

// The index inside 0..length-1 that the mirrored image has at `index`.
int mirrored(const int index, const int length)
{
    // Mirrored, -1 is 0 and -2 is 1. Unsigned: twice the length may exceed an int.
    const uint period = 2u * (uint)length;
    const uint at = (uint)(index < 0 ? -1 - index : index) % period;
    return (int)min(at, period - 1 - at);
}

__attribute__((max_global_work_dim(0)))
__kernel void blur_rows(__global const PIXEL *restrict image,
                        __global PIXEL *restrict blurred,
                        __global const float *restrict weights, const int reach,
                        const int rows, const int columns, const int planes,
                        const int top, const int bottom)
{
    float lines[BLOCK][2 * REACH][VECTOR];
    float window[WINDOW];
    float weight[REACH + 1];
    for (int k = 0; k <= REACH; k++)
        weight[k] = k <= reach ? weights[k] : 0.0f;

    for (int plane = 0; plane < planes; plane++) {
        const size_t base = (size_t)plane * rows * columns;
        for (int left = 0; left < columns; left += INNER * VECTOR) {
            for (int row = top - REACH; row < bottom + REACH; row++) {
                const size_t in = base + (size_t)mirrored(row, rows) * columns;
                const size_t out = base + (size_t)(row - REACH) * columns;
                const int full = row - REACH >= top;
                #pragma ivdep
                for (int v = 0; v < BLOCK; v++) {
                    float column[2 * REACH + 1][VECTOR];
                    #pragma unroll UNROLL
                    for (int k = 0; k < 2 * REACH; k++) {
                        #pragma unroll
                        for (int lane = 0; lane < VECTOR; lane++)
                            column[k][lane] = lines[v][k][lane];
                    }
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++) {
                        const int at = left + (v - SIDE) * VECTOR + lane;
                        column[2 * REACH][lane] = image[in + mirrored(at, columns)];
                    }
                    #pragma unroll UNROLL
                    for (int k = 0; k < 2 * REACH; k++) {
                        #pragma unroll
                        for (int lane = 0; lane < VECTOR; lane++)
                            lines[v][k][lane] = column[k + 1][lane];
                    }

                    float down[VECTOR];
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++)
                        down[lane] = weight[0] * column[REACH][lane];
                    #pragma unroll UNROLL
                    for (int k = 1; k <= REACH; k++) {
                        #pragma unroll
                        for (int lane = 0; lane < VECTOR; lane++) {
                            const float pair =
                                column[REACH - k][lane] + column[REACH + k][lane];
                            const float more = down[lane] + weight[k] * pair;
                            down[lane] = k <= reach ? more : down[lane];
                        }
                    }

                    #pragma unroll UNROLL
                    for (int i = 0; i < WINDOW - VECTOR; i++)
                        window[i] = window[i + VECTOR];
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++)
                        window[WINDOW - VECTOR + lane] = down[lane];

                    float along[VECTOR];
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++)
                        along[lane] = weight[0] * window[SIDE * VECTOR + lane];
                    #pragma unroll UNROLL
                    for (int k = 1; k <= REACH; k++) {
                        #pragma unroll
                        for (int lane = 0; lane < VECTOR; lane++) {
                            const int centre = SIDE * VECTOR + lane;
                            const float pair = window[centre - k] + window[centre + k];
                            const float more = along[lane] + weight[k] * pair;
                            along[lane] = k <= reach ? more : along[lane];
                        }
                    }

                    // The sums along a row come out SIDE vectors after the last pixel.
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++) {
                        const int at = left + (v - 2 * SIDE) * VECTOR + lane;
                        if (full && v >= 2 * SIDE && at < columns)
                            blurred[out + at] = CONVERT(along[lane]);
                    }
                }
            }
        }
    }
}
