// Heat on an FPGA: one work-item streams the grid through CHAIN chained stages.
//
// Each stage is one time step. It keeps the last two rows of its input in on-chip
// line buffers and trails its input by one row; its output feeds the next stage in the
// same clock cycle, so the board reads and writes its memory once for CHAIN steps.
// VECTOR cells side by side go through in each cycle.
//
// Line buffers have a constant length: a wider grid is streamed in blocks of columns.
// A block has one vector more on each side, whose cells go wrong by one column a
// stage and are not written; so CHAIN must not exceed VECTOR.
//
// Defines: VECTOR, CHAIN, BLOCK (vectors in a line buffer, the two extra included).

#pragma OPENCL FP_CONTRACT OFF

__attribute__((max_global_work_dim(0)))
__kernel void heat_steps(__global const float *restrict source,
                         __global float *restrict target,
                         const int rows, const int columns,
                         const float alpha, const int insulated, const int steps)
{
    float above[CHAIN][BLOCK][VECTOR];
    float here[CHAIN][BLOCK][VECTOR];
    float before[CHAIN];

    const int inner = (BLOCK - 2) * VECTOR;
    for (int left = 0; left < columns; left += inner) {
        for (int row = 0; row < rows + CHAIN; row++) {
            #pragma ivdep
            for (int v = 0; v < BLOCK; v++) {
                const int first = left + (v - 1) * VECTOR;
                float value[VECTOR];
                #pragma unroll
                for (int lane = 0; lane < VECTOR; lane++) {
                    const int column = first + lane;
                    const int inside = row < rows && column >= 0 && column < columns;
                    value[lane] = inside ? source[(size_t)row * columns + column] : 0.0f;
                }

                #pragma unroll
                for (int stage = 0; stage < CHAIN; stage++) {
                    const int centre = row - stage - 1;
                    float result[VECTOR];
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++) {
                        const int column = first + lane;
                        const float self = here[stage][v][lane];
                        const float west =
                            lane > 0 ? here[stage][v][max(lane - 1, 0)] : before[stage];
                        const float east = lane < VECTOR - 1
                            ? here[stage][v][min(lane + 1, VECTOR - 1)]
                            : here[stage][min(v + 1, BLOCK - 1)][0];
                        const float up = centre <= 0 ? self : above[stage][v][lane];
                        const float down = centre >= rows - 1 ? self : value[lane];
                        const float side = column <= 0 ? self : west;
                        const float other = column >= columns - 1 ? self : east;
                        const float around = (up + down) + (side + other);
                        const float after = self + alpha * (around - 4.0f * self);
                        const int edge = centre <= 0 || centre >= rows - 1
                                      || column <= 0 || column >= columns - 1;
                        const int keep = (edge && !insulated) || stage >= steps;
                        result[lane] = keep ? self : after;
                    }
                    before[stage] = here[stage][v][VECTOR - 1];
                    #pragma unroll
                    for (int lane = 0; lane < VECTOR; lane++) {
                        above[stage][v][lane] = here[stage][v][lane];
                        here[stage][v][lane] = value[lane];
                        value[lane] = result[lane];
                    }
                }

                const int out = row - CHAIN;
                #pragma unroll
                for (int lane = 0; lane < VECTOR; lane++) {
                    const int column = first + lane;
                    if (out >= 0 && v > 0 && v < BLOCK - 1 && column < columns)
                        target[(size_t)out * columns + column] = value[lane];
                }
            }
        }
    }
}
