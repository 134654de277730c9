/* What library.py calls. Kinds of numbers: 0 float32, 1 bfloat16, 2 float16. */

#ifndef HELIXWEB_KERNELS_H
#define HELIXWEB_KERNELS_H

#include <stdint.h>

/* Whether this CPU can run the others. */
int64_t kernels_are_supported(void);

/* product = rows x weights transposed + bias; all of `kind`, contiguous. `inputs` is a multiple of
 * 8; `wide` is room for num_rows x inputs floats. */
void multiply(int64_t kind, int64_t threads, int64_t num_rows, int64_t inputs, int64_t outputs,
              const char *rows, const char *weights, const char *bias, float *wide, char *product);

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

/* One row of each of several requests, over pages of a KV cache. All offsets in numbers, not bytes.
 * `head_size` is a multiple of 8. */
typedef struct {
    int64_t kind, requests, heads, kv_heads, head_size, page_tokens, longest;
    int64_t query_stride, key_stride, value_stride; /* from one row of the step to the next */
    float scale, softcap;                           /* softcap 0: none */
    const int64_t *rows;   /* of each request, its row in the step */
    const int64_t *tables; /* address of its pages (int64) in this layer */
    const int64_t *starts; /* first token it sees */
    const int64_t *ends;   /* one past the last, which is its own */
    const char *query, *key, *value; /* rows x heads (or kv_heads) x head_size */
    char *key_pages, *value_pages;   /* pages x page_tokens x kv_heads x head_size */
    float *scores;                   /* requests x kv_heads x 2 x longest */
    char *attended;                  /* rows x heads x head_size */
} Decodes;

/* Stores key and value of each row in its request's last page, then attends. */
void attend_decodes(const Decodes *decodes, int64_t threads);

#endif
