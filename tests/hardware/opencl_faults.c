/* OpenCL calls that fail as a test wants: preloaded before the real library.
 *
 * The file that HET_FAULTS names holds lines "FUNCTION CODE"; a call of that function
 * returns CODE as long as it does. The code 1 stands for wrong numbers (reads only), 2
 * for a call that never returns. HET_OPENCL names the real library, which lies in
 * pyopencl's wheel under a name of its own, so that RTLD_NEXT does not find it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;

static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("HET_OPENCL"), RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

static cl_int fault(const char *name) {
    const char *path = getenv("HET_FAULTS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char function[64];
    int code, found = 0;
    if (!file) return 0;
    while (fscanf(file, "%63s %d", function, &code) == 2)
        if (!strcmp(function, name)) found = code;
    fclose(file);
    while (found == 2) pause();
    return found;
}

#define FAIL(name) { cl_int code = fault(name); if (code < 0) return code; }

cl_int clFinish(void *queue) {
    FAIL("clFinish")
    return ((cl_int (*)(void *))real("clFinish"))(queue);
}

void *clCreateBuffer(void *context, uint64_t flags, size_t size, void *host, cl_int *status) {
    cl_int code = fault("clCreateBuffer");
    if (code < 0) {
        if (status) *status = code;
        return NULL;
    }
    return ((void *(*)(void *, uint64_t, size_t, void *, cl_int *))real("clCreateBuffer"))(
        context, flags, size, host, status);
}

void *clCreateProgramWithBinary(void *context, cl_uint count, const void *devices,
                                const size_t *sizes, const unsigned char **binaries,
                                cl_int *each, cl_int *status) {
    cl_int code = fault("clCreateProgramWithBinary");
    if (code < 0) {
        if (status) *status = code;
        return NULL;
    }
    return ((void *(*)(void *, cl_uint, const void *, const size_t *, const unsigned char **,
                       cl_int *, cl_int *))real("clCreateProgramWithBinary"))(
        context, count, devices, sizes, binaries, each, status);
}

cl_int clBuildProgram(void *program, cl_uint count, const void *devices,
                      const char *options, void *notify, void *data) {
    FAIL("clBuildProgram")
    return ((cl_int (*)(void *, cl_uint, const void *, const char *, void *, void *))real(
        "clBuildProgram"))(program, count, devices, options, notify, data);
}

cl_int clEnqueueNDRangeKernel(void *queue, void *kernel, cl_uint dimensions,
                              const size_t *offset, const size_t *global,
                              const size_t *local, cl_uint waits, const void *list,
                              void *event) {
    FAIL("clEnqueueNDRangeKernel")
    return ((cl_int (*)(void *, void *, cl_uint, const size_t *, const size_t *,
                        const size_t *, cl_uint, const void *, void *))real(
        "clEnqueueNDRangeKernel"))(queue, kernel, dimensions, offset, global, local,
                                   waits, list, event);
}

cl_int clEnqueueReadBuffer(void *queue, void *buffer, cl_uint blocking, size_t offset,
                           size_t size, void *target, cl_uint waits, const void *list,
                           void *event) {
    cl_int code = fault("clEnqueueReadBuffer");
    if (code < 0) return code;
    cl_int status = ((cl_int (*)(void *, void *, cl_uint, size_t, size_t, void *, cl_uint,
                                 const void *, void *))real("clEnqueueReadBuffer"))(
        queue, buffer, blocking, offset, size, target, waits, list, event);
    if (code == 1 && size) ((unsigned char *)target)[0] ^= 1;
    return status;
}
