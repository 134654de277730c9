/* Cheapest covers by dynamic programming; planner/bounds/cover.py explains them. */

#include "loops.h"

/* Writes price_of and last_item, (at_least + 1) rows of target + 1 each. */
void cheapest_covers(i64 num_items, const i64 *units, const double *prices,
                     const double *prices_per_unit, i64 target, i64 at_least, double *price_of,
                     i64 *last_item)
{
    i64 row = target + 1, cheapest = 0;
    for (i64 i = 1; i < num_items; i++)
        if (prices[i] < prices[cheapest]) cheapest = i;
    for (i64 missing = 0; missing <= at_least; missing++) {
        price_of[missing * row] = (double)missing * prices[cheapest];
        last_item[missing * row] = missing > 0 ? cheapest : 0;
    }
    for (i64 g = 1; g <= target; g++)
        for (i64 missing = 0; missing <= at_least; missing++) {
            const double *before = price_of + (missing > 0 ? missing - 1 : 0) * row;
            double least = 0.0;
            i64 last = -1;
            for (i64 i = 0; i < num_items; i++) {
                i64 carried = units[i] < g ? units[i] : g;
                double price = prices[i] + prices_per_unit[i] * (double)carried + before[g - carried];
                if (last < 0 || price < least) {
                    least = price;
                    last = i;
                }
            }
            price_of[missing * row + g] = least;
            last_item[missing * row + g] = last;
        }
}
