/* What library.py calls. Kinds of numbers: 0 float32, 1 bfloat16, 2 float16. */

#ifndef HELIXWEB_KERNELS_H
#define HELIXWEB_KERNELS_H

#include <stdint.h>

/* What the kernels can use; each set includes the ones before it. */
enum { WITH_AVX2, WITH_AVX512, WITH_AVX512_BF16 };

/* The last of them that this CPU has, or -1: it can run none of the others. */
int64_t kernels_instructions(void);

/* product = rows x weights transposed + bias; all of `kind`, contiguous. `room` has space for the
 * rows in float32, the inputs rounded up to a multiple of 16. */
void multiply(int64_t kind, int64_t instructions, int64_t threads, int64_t num_rows, int64_t inputs,
              int64_t outputs, const char *rows, const char *weights, const char *bias, char *room,
              char *product);

/* product = rows / their root mean square * weight; all of `kind`, contiguous. `width` is a multiple
 * of 8. */
void rms_norm(int64_t kind, int64_t threads, int64_t num_rows, int64_t width, float eps,
              const char *rows, const char *weight, char *product);

/* product = silu(gate) * up; rows of `gate_up` have `width` of gate, then of up. `width` is a
 * multiple of 8. */
void silu_gate(int64_t kind, int64_t threads, int64_t num_rows, int64_t width, const char *gate_up,
               char *product);

/* Rotary embedding of heads whose pairs are (i, i + head_size / 2), by cos and sin, num_rows x
 * head_size each. `stride`: numbers from one row to the next; `product` is contiguous. `head_size`
 * is a multiple of 16. */
void rotate(int64_t kind, int64_t threads, int64_t num_rows, int64_t heads, int64_t head_size,
            int64_t stride, const char *rows, const char *cos, const char *sin, char *product);

/* Rows of several requests, over pages of a KV cache; those of one request follow each other in the
 * step and in its sequence. All offsets in numbers, not bytes. `head_size` is a multiple of 8. */
typedef struct {
    int64_t kind, spans, heads, kv_heads, head_size, page_tokens;
    int64_t longest; /* at least the tokens that the rows of one request see */
    int64_t window;  /* tokens that a row sees, itself included; 0: all up to itself */
    int64_t query_stride, key_stride, value_stride; /* from one row of the step to the next */
    float scale, softcap;                           /* softcap 0: none */
    const int64_t *rows;      /* of each span, its first row in the step */
    const int64_t *counts;    /* its rows */
    const int64_t *positions; /* the first one's in its sequence */
    const int64_t *tables;    /* address of its pages (int64) in this layer */
    const char *query, *key, *value; /* rows x heads (or kv_heads) x head_size */
    char *key_pages, *value_pages;   /* pages x page_tokens x kv_heads x head_size */
    char *attended;                  /* rows x heads x head_size */
    int64_t *failed;                 /* becomes 1 when memory is short */
} Rows;

/* Stores the rows' keys and values in their pages, then attends. */
void attend_rows(const Rows *rows, int64_t threads);

#endif
