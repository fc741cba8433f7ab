<?php

declare(strict_types=1);

// Two coroutines share one client, each with a connection of its own, and take turns in the middle of everything.

use Fencing\Fencing;
use Fencing\Guard;
use Fencing\RedisLock;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/../connect.php';

$connections = new WeakMap();
$pdo = function () use ($connections): PDO {
    return $connections[Fiber::getCurrent()] ??= connectPostgres();
};
$fencing = new Fencing(new RedisLock(connectRedis()), new Guard($pdo), 'fibers');

$work = function (string $sku) use ($fencing, $pdo): string {
    $lease = $fencing->acquire("inventory:$sku");
    Fiber::suspend();
    $fencing->transaction($lease, function (PDO $mine) use ($sku, $pdo): void {
        if ($mine !== $pdo()) {
            throw new LogicException('the connection of another coroutine');
        }
        Fiber::suspend();
        $mine->exec("UPDATE stock SET left_over = left_over - 1 WHERE sku = '$sku'");
        Fiber::suspend();
    });
    Fiber::suspend();
    $fencing->release($lease);
    return $lease->fence->resource;
};
$a = new Fiber($work);
$b = new Fiber($work);
$a->start('sku-42');
$b->start('sku-43');
while (!$a->isTerminated() || !$b->isTerminated()) {
    foreach ([$a, $b] as $fiber) {
        $fiber->isTerminated() || $fiber->resume();
    }
}
echo "OK: {$a->getReturn()} {$b->getReturn()}\n";
