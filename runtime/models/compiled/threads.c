/* Threads that wait, without spinning, for something to share with the caller. */

#include "threads.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <pthread.h>
#include <stddef.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t began, ended;
    Run *run; /* NULL: nothing to do */
    const void *job;
    int64_t items, next, share; /* next: not taken yet; share: taken at once */
    int64_t threads, busy;
    uint64_t round;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .began = PTHREAD_COND_INITIALIZER,
          .ended = PTHREAD_COND_INITIALIZER};
static pthread_mutex_t one_caller = PTHREAD_MUTEX_INITIALIZER;

/* Takes shares until none is left; called and left with the lock held. */
static void work(void)
{
    while (pool.next < pool.items) {
        int64_t first = pool.next, end = first + pool.share;
        pool.next = end = end < pool.items ? end : pool.items;
        pthread_mutex_unlock(&pool.lock);
        pool.run(pool.job, first, end);
        pthread_mutex_lock(&pool.lock);
    }
}

static void *serve(void *unused)
{
    uint64_t seen = 0;
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.run == NULL || pool.round == seen)
            pthread_cond_wait(&pool.began, &pool.lock);
        seen = pool.round;
        pool.busy++;
        work();
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
    pool.run = NULL;
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

void run_shared(Run *run, const void *job, int64_t items, int64_t together, int64_t threads)
{
    const int64_t shares = 4 * threads; /* more than one each: a thread may be held up */
    if (threads <= 1) {
        run(job, 0, items);
        return;
    }
    pthread_mutex_lock(&one_caller);
    start_threads(threads - 1);
    pthread_mutex_lock(&pool.lock);
    pool.run = run;
    pool.job = job;
    pool.items = items;
    pool.next = 0;
    pool.share = (items / shares / together + 1) * together;
    pool.round++;
    pthread_cond_broadcast(&pool.began);
    work();
    while (pool.busy > 0)
        pthread_cond_wait(&pool.ended, &pool.lock);
    pool.run = NULL;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&one_caller);
}

#endif
