/* What product.c and threads.c share. */

#ifndef HELIXWEB_PRODUCT_H
#define HELIXWEB_PRODUCT_H

#include <stdint.h>

enum { TILE_OUTPUTS = 4 };

typedef struct {
    int64_t kind, num_rows, inputs, outputs;
    const float *rows;   /* num_rows x inputs */
    const char *weights; /* outputs x inputs */
    const char *bias;    /* outputs, or NULL */
    char *product;       /* num_rows x outputs */
} Job;

/* Outputs [first, end); `first` is a multiple of TILE_OUTPUTS. */
void run_outputs(const Job *job, int64_t first, int64_t end);

/* For library.py. */
int64_t product_is_supported(void);
void multiply(int64_t kind, int64_t threads, int64_t num_rows, int64_t inputs, int64_t outputs,
              const char *rows, const char *weights, const char *bias, float *wide,
              char *product);

/* All outputs, by `threads` threads, the caller among them. */
void run_shared(const Job *job, int64_t threads);

#endif
