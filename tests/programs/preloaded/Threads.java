import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Two hundred threads at once, collections of garbage, a pool, and threads that are interrupted. With an argument: stays. */
public class Threads {
    public static void main(String[] words) throws Exception {
        final int count = 200;
        var all = new CountDownLatch(count);
        var go = new CountDownLatch(1);
        var sum = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            final int number = at;
            var thread = new Thread(() -> {
                all.countDown();
                try {
                    go.await();
                    for (int turn = 0; turn < 20; turn++) {
                        var kept = new ArrayList<byte[]>();
                        for (int each = 0; each < 20; each++) kept.add(new byte[4096]);
                        sum.addAndGet(number + kept.size());
                        Thread.sleep(1);
                    }
                } catch (InterruptedException error) {
                    throw new RuntimeException(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        all.await();
        System.out.println("kernel threads " + (new java.io.File("/proc/self/task").list().length >= count));
        go.countDown();
        System.gc();
        for (var thread : threads) thread.join();
        System.out.println("sum " + sum.get());

        var pool = Executors.newFixedThreadPool(16);
        var seen = new ConcurrentHashMap<Integer, Integer>();
        for (int at = 0; at < 1000; at++) {
            final int number = at;
            pool.submit(() -> seen.put(number, number * number));
        }
        pool.shutdown();
        System.out.println("pool " + pool.awaitTermination(60, TimeUnit.SECONDS) + " " + seen.size());

        var sleeper = new Thread(() -> {
            try {
                Thread.sleep(100_000);
            } catch (InterruptedException error) {
                System.out.println("interrupted");
            }
        });
        sleeper.start();
        Thread.sleep(100);
        sleeper.interrupt();
        sleeper.join();
        for (var trace : Thread.getAllStackTraces().entrySet()) if (trace.getKey().getName().equals("main")) System.out.println("traces");
        if (words.length > 0) Thread.sleep(100_000);
    }
}
