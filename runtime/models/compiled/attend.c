/* Attention of single rows over pages of a KV cache, in float32, without gathering the pages.
 *
 * An item is one KV head of one request: the scores of all tokens for two query heads at a time,
 * their softmax, the sum of values. What a request gets depends on no other request of the step.
 */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "exponential.h"
#include "threads.h"
#include "widening.h"

#include <math.h>
#include <stddef.h>

enum { TOGETHER = 4, MOST_QUERIES = 2, VECTORS = 4 };

typedef struct {
    const Decodes *all;
    int64_t kind, request, kv_head;
    const int64_t *pages;
} Item;

/* Where a token's numbers of the item's KV head are. */
INLINE char *place(const Item *item, char *pages, int64_t token)
{
    const Decodes *all = item->all;
    int64_t page = item->pages[token / all->page_tokens];
    int64_t slot = page * all->page_tokens + token % all->page_tokens;
    return pages + (slot * all->kv_heads + item->kv_head) * all->head_size * item_bytes(item->kind);
}

/* Scores of `queries` query heads (float32, one behind the other) with the tokens, in rows of
 * `longest`. */
INLINE void score(const Item *item, int64_t kind, const float *query, const int queries,
                  float *scores)
{
    const Decodes *all = item->all;
    const int64_t start = all->starts[item->request], end = all->ends[item->request];
    const int64_t bytes = item_bytes(kind);
    for (int64_t token = start; token < end; token += TOGETHER) {
        const char *keys[TOGETHER];
        __m256 sums[MOST_QUERIES][TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            keys[i] = place(item, all->key_pages, token + i < end ? token + i : end - 1);
            for (int q = 0; q < queries; q++)
                sums[q][i] = _mm256_setzero_ps();
        }
        for (int64_t h = 0; h < all->head_size; h += LANES)
            for (int i = 0; i < TOGETHER; i++) {
                __m256 wide = eight(kind, keys[i] + h * bytes);
                for (int q = 0; q < queries; q++)
                    sums[q][i] = _mm256_fmadd_ps(
                        wide, _mm256_loadu_ps(query + q * all->head_size + h), sums[q][i]);
            }
        for (int q = 0; q < queries; q++) {
            float whole[TOGETHER];
            _mm_storeu_ps(whole, lane_sums(sums[q][0], sums[q][1], sums[q][2], sums[q][3]));
            for (int i = 0; i < TOGETHER && token + i < end; i++) {
                float one = whole[i] * all->scale;
                if (all->softcap > 0)
                    one = tanhf(one / all->softcap) * all->softcap;
                scores[q * all->longest + token - start + i] = one;
            }
        }
    }
}

/* In place, of `count` scores; returns what they must be divided by. */
INLINE float soften(float *scores, int64_t count)
{
    float most = scores[0], total = 0;
    int64_t i;
    for (i = 1; i < count; i++)
        most = scores[i] > most ? scores[i] : most;
    for (i = 0; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(scores + i, exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + i),
                                                              _mm256_set1_ps(most))));
    if (i < count) {
        float rest[LANES] = {0};
        memcpy(rest, scores + i, (size_t)(count - i) * sizeof *scores);
        _mm256_storeu_ps(rest,
                         exponential(_mm256_sub_ps(_mm256_loadu_ps(rest), _mm256_set1_ps(most))));
        memcpy(scores + i, rest, (size_t)(count - i) * sizeof *scores);
    }
    for (i = 0; i < count; i++)
        total += scores[i];
    return total;
}

/* `vectors` x 8 of the attended numbers, from `h` on, of `queries` query heads. */
INLINE void mix(const Item *item, int64_t kind, int64_t h, const int vectors, const int queries,
                const float *scores, const float *totals, char *attended)
{
    const Decodes *all = item->all;
    const int64_t start = all->starts[item->request], end = all->ends[item->request];
    const int64_t bytes = item_bytes(kind);
    __m256 sums[MOST_QUERIES][VECTORS];
    for (int q = 0; q < queries; q++)
        for (int v = 0; v < vectors; v++)
            sums[q][v] = _mm256_setzero_ps();
    for (int64_t token = start; token < end; token++) {
        const char *value = place(item, all->value_pages, token) + h * bytes;
        for (int v = 0; v < vectors; v++) {
            __m256 wide = eight(kind, value + v * LANES * bytes);
            for (int q = 0; q < queries; q++)
                sums[q][v] = _mm256_fmadd_ps(
                    wide, _mm256_set1_ps(scores[q * all->longest + token - start]), sums[q][v]);
        }
    }
    for (int q = 0; q < queries; q++)
        for (int v = 0; v < vectors; v++) {
            store_eight(kind, attended + (q * all->head_size + h + v * LANES) * bytes,
                        _mm256_div_ps(sums[q][v], _mm256_set1_ps(totals[q])));
        }
}

INLINE void attend(const Item *item, int64_t kind, int64_t head, const int queries)
{
    const Decodes *all = item->all;
    const int64_t row = all->rows[item->request], size = all->head_size;
    const int64_t bytes = item_bytes(kind);
    const int64_t count = all->ends[item->request] - all->starts[item->request];
    float *scores = all->scores +
                    (item->request * all->kv_heads + item->kv_head) * MOST_QUERIES * all->longest;
    float wide[MOST_QUERIES * size], totals[MOST_QUERIES];
    const char *query = all->query + (row * all->query_stride + head * size) * bytes;
    char *attended = all->attended + (row * all->heads + head) * size * bytes;
    for (int64_t i = 0; i < queries * size; i += LANES)
        _mm256_storeu_ps(wide + i, eight(kind, query + i * bytes));
    score(item, kind, wide, queries, scores);
    for (int q = 0; q < queries; q++)
        totals[q] = soften(scores + q * all->longest, count);
    int64_t h = 0;
    for (; h + VECTORS * LANES <= size; h += VECTORS * LANES)
        mix(item, kind, h, VECTORS, queries, scores, totals, attended);
    for (; h < size; h += LANES)
        mix(item, kind, h, 1, queries, scores, totals, attended);
}

INLINE void run_item(const Item *item, int64_t kind)
{
    const Decodes *all = item->all;
    const int64_t row = all->rows[item->request], own = all->ends[item->request] - 1;
    const int64_t size = all->head_size, bytes = item_bytes(kind);
    const int64_t group = all->heads / all->kv_heads;
    memcpy(place(item, all->key_pages, own),
           all->key + (row * all->key_stride + item->kv_head * size) * bytes,
           (size_t)(size * bytes));
    memcpy(place(item, all->value_pages, own),
           all->value + (row * all->value_stride + item->kv_head * size) * bytes,
           (size_t)(size * bytes));
    int64_t head = item->kv_head * group;
    for (; head + MOST_QUERIES <= (item->kv_head + 1) * group; head += MOST_QUERIES)
        attend(item, kind, head, MOST_QUERIES);
    if (head < (item->kv_head + 1) * group)
        attend(item, kind, head, 1);
}

AVX2 static void run_items(const void *told, int64_t first, int64_t end)
{
    const Decodes *all = told;
    for (int64_t i = first; i < end; i++) {
        const int64_t request = i / all->kv_heads;
        const Item item = {.all = all,
                           .kind = all->kind,
                           .request = request,
                           .kv_head = i % all->kv_heads,
                           .pages = (const int64_t *)(intptr_t)all->tables[request]};
        if (all->kind == FLOAT32)
            run_item(&item, FLOAT32);
        else if (all->kind == BFLOAT16)
            run_item(&item, BFLOAT16);
        else
            run_item(&item, FLOAT16);
    }
}

void attend_decodes(const Decodes *decodes, int64_t threads)
{
    run_shared(run_items, decodes, decodes->requests * decodes->kv_heads, 1, threads);
}

#endif
