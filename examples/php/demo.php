<?php

declare(strict_types=1);

// The lost update, refused: REDIS_URL=redis://localhost:6379 DATABASE_URL=postgres://localhost/shop php demo.php

use Fencing\Fencing;
use Fencing\Guard;
use Fencing\Held;
use Fencing\Lease;
use Fencing\Lost;
use Fencing\RedisLock;
use Fencing\Stale;

require __DIR__ . '/autoload.php';
require __DIR__ . '/connect.php';

const RESOURCE = 'example-php:sku-42';

function stock(PDO $pdo): int
{
    return (int) $pdo->query("SELECT left_over FROM example_php.stock WHERE sku = 'sku-42'")->fetchColumn();
}

/** Writes what is left after a sale, from what was read before: the careless way that a fence makes safe. */
function sell(Fencing $worker, Lease $lease, int $read, int $sold): void
{
    $worker->transaction($lease, function (PDO $pdo) use ($read, $sold): void {
        $pdo->prepare("UPDATE example_php.stock SET left_over = ? WHERE sku = 'sku-42'")->execute([$read - $sold]);
    });
}

try {
    $redis = connectRedis();
    $pdo = connectPostgres();
    if (!$pdo->query("SELECT to_regprocedure('fencing.protocol()') IS NOT NULL")->fetchColumn()) {
        throw new RuntimeException('the database has no fence schema: run fencectl migrate up');
    }
    if ((int) $pdo->query('SELECT fencing.protocol()')->fetchColumn() !== 1) {
        throw new RuntimeException('the fence schema speaks another protocol than this client');
    }
    $pdo->exec('CREATE SCHEMA IF NOT EXISTS example_php; CREATE TABLE IF NOT EXISTS example_php.stock (sku text PRIMARY KEY, left_over int NOT NULL);
        INSERT INTO example_php.stock VALUES (\'sku-42\', 100) ON CONFLICT (sku) DO UPDATE SET left_over = 100');

    $lock = new RedisLock($redis);
    $guard = new Guard($pdo);
    $a = new Fencing($lock, $guard, 'worker A');
    $b = new Fencing($lock, $guard, 'worker B');

    $held = $a->acquire(RESOURCE, 5.0);
    $readByA = stock($pdo);
    echo "A has token {$held->fence->token} and reads $readByA\n";
    try {
        $b->acquire(RESOURCE);
    } catch (Held $e) {
        echo "B waits: {$e->getMessage()}\n";
    }

    echo "Redis forgets the lock and its counter, as in a failover; A does not notice\n";
    $keys = $lock->keys(RESOURCE, '');
    $redis->del($keys['lock'], $keys['counter']);

    $next = $b->acquire(RESOURCE);
    $readByB = stock($pdo);
    echo "B has token {$next->fence->token}, above A's although the counter began anew, and reads $readByB\n";
    try {
        sell($a, $held, $readByA, 30);
        echo "WENT THROUGH: A wrote from what it had read\n";
    } catch (Stale $e) {
        echo 'A is refused: ' . strtok($e->getMessage(), "\n") . "\n";
    }
    sell($b, $next, $readByB, 50);
    $b->release($next);
    try {
        $a->release($held);
    } catch (Lost $e) {
        echo "A: {$e->getMessage()}\n";
    }

    $again = $a->acquire(RESOURCE);
    sell($a, $again, stock($pdo), 30);
    $a->release($again);
    $left = stock($pdo);
    echo ($left === 20 ? 'OK' : 'BROKEN') . ": 80 sold, $left of 100 left\n";
    exit($left === 20 ? 0 : 1);
} catch (Throwable $e) {
    fwrite(STDERR, 'demo: ' . $e->getMessage() . "\n");
    exit(1);
}
