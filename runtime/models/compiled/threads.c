/* Threads that wait, without spinning, for a product to share with the caller. */

#include "product.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <pthread.h>
#include <stddef.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t began, ended;
    const Job *job;
    int64_t next, share; /* first output not taken yet, outputs taken at once */
    int64_t threads, busy;
    uint64_t round;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .began = PTHREAD_COND_INITIALIZER,
          .ended = PTHREAD_COND_INITIALIZER};
static pthread_mutex_t one_caller = PTHREAD_MUTEX_INITIALIZER;

/* Takes shares until none is left; called and left with the lock held. */
static void work(const Job *job)
{
    while (pool.next < job->outputs) {
        int64_t first = pool.next, end = first + pool.share;
        pool.next = end = end < job->outputs ? end : job->outputs;
        pthread_mutex_unlock(&pool.lock);
        run_outputs(job, first, end);
        pthread_mutex_lock(&pool.lock);
    }
}

static void *serve(void *unused)
{
    uint64_t seen = 0;
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.job == NULL || pool.round == seen)
            pthread_cond_wait(&pool.began, &pool.lock);
        seen = pool.round;
        pool.busy++;
        work(pool.job);
        if (--pool.busy == 0)
            pthread_cond_signal(&pool.ended);
    }
    return NULL;
}

/* A forked child has none of the threads. */
static void forget_threads(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_mutex_init(&one_caller, NULL);
    pthread_cond_init(&pool.began, NULL);
    pthread_cond_init(&pool.ended, NULL);
    pool.job = NULL;
    pool.threads = pool.busy = 0;
}

/* As many threads beside the caller as it wants, or as can be had. */
static void start_threads(int64_t wanted)
{
    static int told;
    if (!told) {
        pthread_atfork(NULL, NULL, forget_threads);
        told = 1;
    }
    for (; pool.threads < wanted; pool.threads++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, NULL) != 0)
            return;
        pthread_detach(thread);
    }
}

void run_shared(const Job *job, int64_t threads)
{
    const int64_t shares = 4 * threads; /* more than one each: a thread may be held up */
    pthread_mutex_lock(&one_caller);
    start_threads(threads - 1);
    pthread_mutex_lock(&pool.lock);
    pool.job = job;
    pool.next = 0;
    pool.share = (job->outputs / shares / TILE_OUTPUTS + 1) * TILE_OUTPUTS;
    pool.round++;
    pthread_cond_broadcast(&pool.began);
    work(job);
    while (pool.busy > 0)
        pthread_cond_wait(&pool.ended, &pool.lock);
    pool.job = NULL;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&one_caller);
}

#endif
