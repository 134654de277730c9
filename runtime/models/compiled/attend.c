/* Attention of rows over pages of a KV cache, in float32.
 *
 * An item is some rows of one request and one KV head. Its queries are those rows' heads that share
 * the KV head. A score is summed as a norm is, in LANES lanes along the head; the sum of a row's
 * shares, in LANES lanes from the first token it sees on; a value, token after token. So what a row
 * gets depends neither on other requests, nor on the rows that are run together with it.
 */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "exponential.h"
#include "threads.h"
#include "widening.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { ITEM_ROWS = 16, CHUNK_TOKENS = 32, TOGETHER = 4, MOST_QUERIES = 3, VECTORS = 4 };

typedef struct {
    const Rows *all;
    int64_t kind, span, row, num_rows, kv_head; /* row: in its span */
    const int64_t *pages;
    float *queries, *scores, *sums, *totals, *chunk;
} Item;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Tokens that a row of the item sees: [start, end). */
INLINE int64_t end_of(const Item *item, int64_t row)
{
    return item->all->positions[item->span] + item->row + row + 1;
}

INLINE int64_t start_of(const Item *item, int64_t row)
{
    const int64_t window = item->all->window;
    return window == 0 ? 0 : most(0, end_of(item, row) - window);
}

/* Where a token's numbers of a KV head are. */
INLINE char *place(const Rows *all, const int64_t *pages, int64_t kv_head, char *pool, int64_t token)
{
    const int64_t slot =
        pages[token / all->page_tokens] * all->page_tokens + token % all->page_tokens;
    return pool + (slot * all->kv_heads + kv_head) * all->head_size * item_bytes(all->kind);
}

/* Tokens [token, token + count) in float32, one behind the other. */
INLINE void read_chunk(const Item *item, int64_t kind, char *pool, int64_t token, int64_t count)
{
    const int64_t size = item->all->head_size, bytes = item_bytes(kind);
    for (int64_t i = 0; i < count; i++) {
        const char *from = place(item->all, item->pages, item->kv_head, pool, token + i);
        for (int64_t h = 0; h < size; h += LANES)
            _mm256_storeu_ps(item->chunk + i * size + h, eight(kind, from + h * bytes));
    }
}

/* Scores of `queries` queries from `query` on with `count` tokens of the chunk; `scores` has the
 * place of the first one's first. */
INLINE void score(const Item *item, int64_t query, const int queries, int64_t count, float *scores)
{
    const Rows *all = item->all;
    const int64_t size = all->head_size;
    const float *wide = item->queries + query * size;
    for (int64_t token = 0; token < count; token += TOGETHER) {
        const float *keys[TOGETHER];
        __m256 sums[MOST_QUERIES][TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            keys[i] = item->chunk + least(token + i, count - 1) * size;
            for (int q = 0; q < queries; q++)
                sums[q][i] = _mm256_setzero_ps();
        }
        for (int64_t h = 0; h < size; h += LANES) {
            __m256 part[MOST_QUERIES];
            for (int q = 0; q < queries; q++)
                part[q] = _mm256_loadu_ps(wide + q * size + h);
            for (int i = 0; i < TOGETHER; i++) {
                const __m256 key = _mm256_loadu_ps(keys[i] + h);
                for (int q = 0; q < queries; q++)
                    sums[q][i] = _mm256_fmadd_ps(key, part[q], sums[q][i]);
            }
        }
        for (int q = 0; q < queries; q++) {
            float whole[TOGETHER];
            _mm_storeu_ps(whole, _mm_mul_ps(lane_sums(sums[q][0], sums[q][1], sums[q][2], sums[q][3]),
                                            _mm_set1_ps(all->scale)));
            for (int i = 0; i < TOGETHER && token + i < count; i++)
                scores[q * all->longest + token + i] =
                    all->softcap > 0 ? tanhf(whole[i] / all->softcap) * all->softcap : whole[i];
        }
    }
}

/* In place, of `count` scores; returns what they must be divided by. */
INLINE float soften(float *scores, int64_t count)
{
    __m256 highest = _mm256_set1_ps(-INFINITY), sums = _mm256_setzero_ps();
    float lanes[LANES], greatest = -INFINITY;
    int64_t i;
    for (i = 0; i + LANES <= count; i += LANES) /* keeps what is there where one is no number */
        highest = _mm256_max_ps(_mm256_loadu_ps(scores + i), highest);
    _mm256_storeu_ps(lanes, highest);
    for (int lane = 0; lane < LANES; lane++)
        greatest = lanes[lane] > greatest ? lanes[lane] : greatest;
    for (; i < count; i++)
        greatest = scores[i] > greatest ? scores[i] : greatest;
    const __m256 shift = _mm256_set1_ps(greatest);
    for (i = 0; i + LANES <= count; i += LANES) {
        const __m256 shares = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + i), shift));
        _mm256_storeu_ps(scores + i, shares);
        sums = _mm256_add_ps(sums, shares);
    }
    if (i < count) {
        float rest[LANES] = {0};
        memcpy(rest, scores + i, (size_t)(count - i) * sizeof *scores);
        _mm256_storeu_ps(rest, exponential(_mm256_sub_ps(_mm256_loadu_ps(rest), shift)));
        memcpy(scores + i, rest, (size_t)(count - i) * sizeof *scores);
        memset(rest + (count - i), 0, (size_t)(i + LANES - count) * sizeof *rest);
        sums = _mm256_add_ps(sums, _mm256_loadu_ps(rest));
    }
    const __m256 none = _mm256_setzero_ps();
    return _mm_cvtss_f32(lane_sums(sums, none, none, none));
}

/* Adds the values of chunk tokens [first, end), times their shares, to `vectors` x 8 of the sums of
 * `queries` queries; `shares` has the first one's of the chunk's first token. */
INLINE void mix_part(const Item *item, int64_t query, const int queries, int64_t h,
                     const int vectors, int64_t first, int64_t end, const float *shares)
{
    const int64_t size = item->all->head_size, longest = item->all->longest;
    float *to = item->sums + query * size + h;
    __m256 sums[MOST_QUERIES][VECTORS];
    for (int q = 0; q < queries; q++)
        for (int v = 0; v < vectors; v++)
            sums[q][v] = _mm256_loadu_ps(to + q * size + v * LANES);
    for (int64_t token = first; token < end; token++) {
        const float *value = item->chunk + token * size + h;
        __m256 share[MOST_QUERIES];
        for (int q = 0; q < queries; q++)
            share[q] = _mm256_set1_ps(shares[q * longest + token]);
        for (int v = 0; v < vectors; v++) {
            const __m256 wide = _mm256_loadu_ps(value + v * LANES);
            for (int q = 0; q < queries; q++)
                sums[q][v] = _mm256_fmadd_ps(wide, share[q], sums[q][v]);
        }
    }
    for (int q = 0; q < queries; q++)
        for (int v = 0; v < vectors; v++)
            _mm256_storeu_ps(to + q * size + v * LANES, sums[q][v]);
}

INLINE void mix(const Item *item, int64_t query, const int queries, int64_t first, int64_t end,
                const float *shares)
{
    int64_t h = 0;
    for (; h + VECTORS * LANES <= item->all->head_size; h += VECTORS * LANES)
        mix_part(item, query, queries, h, VECTORS, first, end, shares);
    for (; h < item->all->head_size; h += LANES)
        mix_part(item, query, queries, h, 1, first, end, shares);
}

/* Of the queries, whose scores begin at token `lowest`, with tokens [token, token + count). */
INLINE void score_chunk(const Item *item, int64_t num_queries, int64_t lowest, int64_t token,
                        int64_t count)
{
    for (int64_t query = 0, taken; query < num_queries; query += taken) {
        float *scores = item->scores + query * item->all->longest + token - lowest;
        const int64_t left = num_queries - query;
        taken = left == 4 ? 2 : least(left, MOST_QUERIES);
        if (taken == MOST_QUERIES)
            score(item, query, MOST_QUERIES, count, scores);
        else if (taken == 2)
            score(item, query, 2, count, scores);
        else
            score(item, query, 1, count, scores);
    }
}

INLINE void mix_chunk(const Item *item, int64_t group, int64_t num_queries, int64_t lowest,
                      int64_t token, int64_t count)
{
    int64_t query = 0;
    while (query < num_queries) {
        const float *shares = item->scores + query * item->all->longest + token - lowest;
        const int64_t row = query / group;
        const int64_t first = most(0, start_of(item, row) - token);
        const int64_t end = least(count, end_of(item, row) - token);
        const int64_t left = num_queries - query, together = left == 4 ? 2 : MOST_QUERIES;
        int64_t alike = 1; /* that see the same tokens of the chunk */
        while (alike < together && alike < left) {
            const int64_t other = (query + alike) / group;
            if (most(0, start_of(item, other) - token) != first ||
                least(count, end_of(item, other) - token) != end)
                break;
            alike++;
        }
        if (alike == MOST_QUERIES)
            mix(item, query, MOST_QUERIES, first, end, shares);
        else if (alike == 2)
            mix(item, query, 2, first, end, shares);
        else
            mix(item, query, 1, first, end, shares);
        query += alike;
    }
}

INLINE void attend(const Item *item, int64_t kind)
{
    const Rows *all = item->all;
    const int64_t size = all->head_size, bytes = item_bytes(kind);
    const int64_t group = all->heads / all->kv_heads, queries = item->num_rows * group;
    const int64_t lowest = start_of(item, 0), highest = end_of(item, item->num_rows - 1);
    const int64_t row = all->rows[item->span] + item->row, head = item->kv_head * group;
    for (int64_t query = 0; query < queries; query++) {
        const char *from = all->query + ((row + query / group) * all->query_stride +
                                         (head + query % group) * size) *
                                            bytes;
        for (int64_t h = 0; h < size; h += LANES)
            _mm256_storeu_ps(item->queries + query * size + h, eight(kind, from + h * bytes));
    }
    for (int64_t token = lowest; token < highest; token += CHUNK_TOKENS) {
        const int64_t count = least(CHUNK_TOKENS, highest - token);
        read_chunk(item, kind, all->key_pages, token, count);
        score_chunk(item, queries, lowest, token, count);
    }
    for (int64_t query = 0; query < queries; query++) {
        const int64_t start = start_of(item, query / group), end = end_of(item, query / group);
        item->totals[query] =
            soften(item->scores + query * all->longest + start - lowest, end - start);
    }
    memset(item->sums, 0, (size_t)(queries * size) * sizeof *item->sums);
    for (int64_t token = lowest; token < highest; token += CHUNK_TOKENS) {
        const int64_t count = least(CHUNK_TOKENS, highest - token);
        read_chunk(item, kind, all->value_pages, token, count);
        mix_chunk(item, group, queries, lowest, token, count);
    }
    for (int64_t query = 0; query < queries; query++) {
        char *to = all->attended +
                   ((row + query / group) * all->heads + head + query % group) * size * bytes;
        const __m256 total = _mm256_set1_ps(item->totals[query]);
        for (int64_t h = 0; h < size; h += LANES)
            store_eight(kind, to + h * bytes,
                        _mm256_div_ps(_mm256_loadu_ps(item->sums + query * size + h), total));
    }
}

INLINE int64_t items_of(const Rows *all, int64_t span)
{
    return (all->counts[span] + ITEM_ROWS - 1) / ITEM_ROWS * all->kv_heads;
}

AVX2 static void run_items(const void *told, int64_t first, int64_t end)
{
    const Rows *all = told;
    const int64_t queries = ITEM_ROWS * (all->heads / all->kv_heads), size = all->head_size;
    const int64_t floats = queries * (2 * size + all->longest + 1) + CHUNK_TOKENS * size;
    float *room = malloc((size_t)floats * sizeof *room);
    if (room == NULL) {
        __atomic_store_n(all->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    int64_t span = 0, before = 0;
    for (int64_t i = first; i < end; i++) {
        while (i - before >= items_of(all, span))
            before += items_of(all, span++);
        const int64_t row = (i - before) / all->kv_heads * ITEM_ROWS;
        const Item item = {.all = all,
                           .kind = all->kind,
                           .span = span,
                           .row = row,
                           .num_rows = least(ITEM_ROWS, all->counts[span] - row),
                           .kv_head = (i - before) % all->kv_heads,
                           .pages = (const int64_t *)(intptr_t)all->tables[span],
                           .queries = room,
                           .sums = room + queries * size,
                           .scores = room + 2 * queries * size,
                           .totals = room + queries * (2 * size + all->longest),
                           .chunk = room + queries * (2 * size + all->longest + 1)};
        if (all->kind == FLOAT32)
            attend(&item, FLOAT32);
        else if (all->kind == BFLOAT16)
            attend(&item, BFLOAT16);
        else
            attend(&item, FLOAT16);
    }
    free(room);
}

/* Copies the rows' keys and values to their pages. */
AVX2 static void keep_rows(const Rows *all)
{
    const int64_t bytes = item_bytes(all->kind), size = all->head_size * bytes;
    for (int64_t span = 0; span < all->spans; span++)
        for (int64_t i = 0; i < all->counts[span]; i++) {
            const int64_t row = all->rows[span] + i;
            const int64_t *pages = (const int64_t *)(intptr_t)all->tables[span];
            const size_t width = (size_t)(all->kv_heads * size);
            memcpy(place(all, pages, 0, all->key_pages, all->positions[span] + i),
                   all->key + row * all->key_stride * bytes, width);
            memcpy(place(all, pages, 0, all->value_pages, all->positions[span] + i),
                   all->value + row * all->value_stride * bytes, width);
        }
}

AVX2 void attend_rows(const Rows *rows, int64_t threads)
{
    int64_t items = 0;
    for (int64_t span = 0; span < rows->spans; span++)
        items += items_of(rows, span);
    keep_rows(rows);
    run_shared(run_items, rows, items, 1, threads);
}

#endif
