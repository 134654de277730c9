/* The tiles of one instruction set; see product.c for the order of the sums.
 *
 * Included where these are defined:
 *   TARGET            attribute of functions in the instruction set
 *   VECTORS           registers of a row of a tile
 *   VECTOR            register with the lanes of the sums of IN_VECTOR outputs: of a tile's
 *                     outputs v, v + VECTORS, ...
 *   TILE_ROWS         rows of the largest tile; most_rows(kind): of one for a kind of numbers
 *   steps(kind)       multiplications per block and lane
 *   weights_of(kind, blocks, v, step), row_of(kind, block, step)
 *                     what is multiplied: of the outputs of VECTOR v, and of a row
 *   multiply_add(weights, row, sums)
 *   row_block_bytes(kind)
 *   MOST_ALONE        tiles of rows up to which weights are read from the matrix by each; beyond,
 *                     the first copies them into a panel, as they are multiplied, for the others
 *   row_sums(sums)    the sums of the tile's outputs, from the VECTORS that hold their lanes
 */

#define TILE_INLINE static inline __attribute__((always_inline)) TARGET

enum {
    TILE_OUTPUTS = VECTORS * IN_VECTOR,
    PANEL_STEPS = 64, /* multiplications per lane between two looks at the sums in memory */
    MOST_TILES = CHUNK_ROWS / TILE_ROWS,
};

/* Where a tile of rows reads weights from: the matrix, also to fill the panel, or the panel. */
enum { MATRIX, FILLING, PANEL };

/* Weights of TILE_OUTPUTS outputs, of which `count` are there. */
typedef struct {
    int64_t output, count;
    const char *next; /* weights of the following outputs, to be fetched meanwhile; or NULL */
    VECTOR *panel;
    int64_t tile, tiles; /* of rows */
} Weights;

/* Fetches the bytes at `at` of the following outputs: with a panel each tile of rows those of some,
 * so that memory is read evenly, into the second cache, since the first holds the panel. */
TILE_INLINE void fetch_next(const Weights *of, int64_t width, int64_t at, const int from)
{
    if (from == MATRIX)
        for (int64_t e = 0; e < TILE_OUTPUTS; e++)
            _mm_prefetch(of->next + e * width + at, _MM_HINT_T0);
    else
        for (int64_t e = of->tile; e < TILE_OUTPUTS; e += of->tiles)
            _mm_prefetch(of->next + e * width + at, _MM_HINT_T1);
}

/* Adds the products of one block. */
TILE_INLINE void add_block(int64_t kind, const int from, const char *const *blocks, VECTOR *panel,
                           const char *row, int64_t row_bytes, const int rows,
                           VECTOR sums[VECTORS][TILE_ROWS])
{
    for (int step = 0; step < steps(kind); step++) {
        VECTOR wide[VECTORS], ones[TILE_ROWS];
        if (TILE_ROWS < VECTORS) /* what is fewer stays in registers */
            for (int t = 0; t < rows; t++)
                ones[t] = row_of(kind, row + t * row_bytes, step);
        for (int v = 0; v < VECTORS; v++) {
            wide[v] = from == PANEL ? panel[step * VECTORS + v] : weights_of(kind, blocks, v, step);
            if (from == FILLING)
                panel[step * VECTORS + v] = wide[v];
            if (TILE_ROWS < VECTORS)
                for (int t = 0; t < rows; t++)
                    sums[v][t] = multiply_add(wide[v], ones[t], sums[v][t]);
        }
        if (TILE_ROWS >= VECTORS)
            for (int t = 0; t < rows; t++) {
                ones[t] = row_of(kind, row + t * row_bytes, step);
                for (int v = 0; v < VECTORS; v++)
                    sums[v][t] = multiply_add(wide[v], ones[t], sums[v][t]);
            }
    }
}

/* Blocks [first, end) of `rows` rows. `sums`: those of the blocks before, and where they are left;
 * of all blocks they go into the product. */
TILE_INLINE void run_tile(const Job *job, int64_t kind, const Weights *of, int64_t first,
                          int64_t end, int64_t row, const int rows, const int from, VECTOR *sums)
{
    const int64_t item = item_bytes(kind), width = job->inputs * item;
    const int64_t block = block_items(kind) * item, blocks = (width + block - 1) / block;
    const int64_t whole = width / block < end ? width / block : end;
    const char *row_at = job->rows + row * job->row_bytes + first * row_block_bytes(kind);
    const char *weights[TILE_OUTPUTS], *here[TILE_OUTPUTS];
    VECTOR *panel = of->panel;
    VECTOR held[VECTORS][TILE_ROWS];
    for (int v = 0; v < VECTORS; v++)
        for (int t = 0; t < rows; t++)
            held[v][t] = from == MATRIX || first == 0 ? (VECTOR){0} : sums[v * TILE_ROWS + t];
    if (from == PANEL) {
        for (int64_t at = first; at < end; at++) {
            if (of->next != NULL && at * block % LINE == 0)
                fetch_next(of, width, at * block, from);
            add_block(kind, PANEL, here, panel, row_at, job->row_bytes, rows, held);
            row_at += row_block_bytes(kind);
            panel += steps(kind) * VECTORS;
        }
    } else {
        for (int e = 0; e < TILE_OUTPUTS; e++)
            weights[e] = job->weights + (of->output + (e < of->count ? e : of->count - 1)) * width;
        for (int64_t at = first * block; at < whole * block; at += block) {
            if (of->next != NULL && at % LINE == 0)
                fetch_next(of, width, at, from);
            for (int e = 0; e < TILE_OUTPUTS; e++)
                here[e] = weights[e] + at;
            add_block(kind, from, here, panel, row_at, job->row_bytes, rows, held);
            row_at += row_block_bytes(kind);
            if (from == FILLING)
                panel += steps(kind) * VECTORS;
        }
        if (whole < end) {
            char padded[TILE_OUTPUTS][LINE / 2] = {{0}};
            for (int e = 0; e < TILE_OUTPUTS; e++) {
                memcpy(padded[e], weights[e] + whole * block, (size_t)(width - whole * block));
                here[e] = padded[e];
            }
            add_block(kind, from, here, panel, row_at, job->row_bytes, rows, held);
        }
    }
    for (int t = 0; t < rows; t++) {
        VECTOR of_row[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            of_row[v] = held[v][t];
        if (from == MATRIX || end == blocks)
            store_sums(job, kind, of->output, row + t,
                       of->count < TILE_OUTPUTS ? of->count : TILE_OUTPUTS, row_sums(of_row));
        else
            for (int v = 0; v < VECTORS; v++)
                sums[v * TILE_ROWS + t] = of_row[v];
    }
}

TILE_INLINE void run_rows(const Job *job, int64_t kind, const Weights *of, int64_t first,
                          int64_t end, int64_t row, int64_t rows, const int from, VECTOR *sums)
{
    switch (rows) {
    case 1:
        run_tile(job, kind, of, first, end, row, 1, from, sums);
        break;
    case 2:
        run_tile(job, kind, of, first, end, row, 2, from, sums);
        break;
#if TILE_ROWS > 3
    case 3:
        run_tile(job, kind, of, first, end, row, 3, from, sums);
        break;
    case 4:
        run_tile(job, kind, of, first, end, row, 4, from, sums);
        break;
    case 5:
        run_tile(job, kind, of, first, end, row, 5, from, sums);
        break;
#endif
    default:
        run_tile(job, kind, of, first, end, row, TILE_ROWS, from, sums);
    }
}

/* TILE_OUTPUTS outputs of rows [row, last), in tiles of about the same number of rows. */
TILE_INLINE void run_chunk(const Job *job, int64_t kind, Weights of, int64_t row, int64_t last)
{
    const int64_t blocks = (job->inputs + block_items(kind) - 1) / block_items(kind);
    VECTOR panel[PANEL_STEPS * VECTORS], sums[MOST_TILES][VECTORS * TILE_ROWS];
    of.panel = panel;
    of.tiles = (last - row + most_rows(kind) - 1) / most_rows(kind);
    const int has_panel = (int)MOST_ALONE < (int)CHUNK_ROWS && of.tiles > MOST_ALONE;
    const int64_t together = has_panel ? PANEL_STEPS / steps(kind) : blocks;
    for (int64_t first = 0; first < blocks; first += together) {
        const int64_t end = first + together < blocks ? first + together : blocks;
        int64_t at = row, rows;
        for (of.tile = 0; of.tile < of.tiles; of.tile++, at += rows) {
            rows = (last - at + of.tiles - of.tile - 1) / (of.tiles - of.tile);
            if (!has_panel)
                run_rows(job, kind, &of, first, end, at, rows, MATRIX, NULL);
            else if (of.tile == 0)
                run_rows(job, kind, &of, first, end, at, rows, FILLING, sums[of.tile]);
            else
                run_rows(job, kind, &of, first, end, at, rows, PANEL, sums[of.tile]);
            of.next = has_panel ? of.next : NULL; /* fetched */
        }
    }
}

TILE_INLINE void outputs_of(const Job *job, int64_t kind, int64_t first, int64_t end)
{
    const int64_t width = job->inputs * item_bytes(kind);
    for (int64_t row = 0; row < job->num_rows; row += CHUNK_ROWS) {
        int64_t last = row + CHUNK_ROWS < job->num_rows ? row + CHUNK_ROWS : job->num_rows;
        for (int64_t output = first; output < end; output += TILE_OUTPUTS) {
            const Weights of = {.output = output, .count = end - output,
                                .next = output + 2 * TILE_OUTPUTS <= end
                                            ? job->weights + (output + TILE_OUTPUTS) * width
                                            : NULL};
            run_chunk(job, kind, of, row, last);
        }
    }
}
