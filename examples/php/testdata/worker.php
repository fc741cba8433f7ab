<?php

declare(strict_types=1);

// A PHP process that php_test.go drives: a line of JSON in, a line of JSON out.

use Fencing\Fence;
use Fencing\Fencing;
use Fencing\Guard;
use Fencing\RedisLock;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/../connect.php';

// Hands each call to another connection, as a pool does.
final class Pool
{
    private array $connections = [];

    private int $calls = 0;

    public function __construct(\Closure $connect)
    {
        $this->connections = [$connect(), $connect(), $connect()];
    }

    public function __call(string $method, array $arguments): mixed
    {
        return $this->connections[$this->calls++ % 3]->$method(...$arguments);
    }
}

$url = parts('REDIS_URL', 'redis');
$redis = match (getenv('REDIS_KIND') ?: '') {
    'pool' => new Pool(connectRedis(...)),
    'cluster' => new RedisCluster(null, ["{$url['host']}:{$url['port']}"], 5.0, 5.0),
    '' => connectRedis(),
};
$pdo = connectPostgres();
$pdo->setAttribute(PDO::ATTR_EMULATE_PREPARES, (bool) getenv('EMULATE_PREPARES'));
$names = getenv('SHARED_KEYS') ? fn (string $resource): array => [$resource, "$resource:fence"] : null;
$guard = new Guard(fn (): PDO => $pdo);
$fencing = new Fencing(new RedisLock($redis, (int) (getenv('TTL_MS') ?: 30_000), getenv('PREFIX') ?: 'fencing', names: $names, publish: getenv('REDIS_KIND') === 'cluster' ? 'SPUBLISH' : 'PUBLISH'), $guard, 'php');
$leases = new ArrayObject();

// As wise-locksmith and malkusch/lock take and release a lock.
$release = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0';
$set = fn (string $sql): callable => fn (PDO $pdo): mixed => $pdo->query($sql)->rowCount();

$commands = [
    'acquire' => function (array $c) use ($fencing, $leases): string {
        return (string) ($leases[$c['resource']] = $fencing->acquire($c['resource'], $c['wait'] ?? 0.0))->fence;
    },
    'renew' => fn (array $c) => $fencing->renew($leases[$c['resource']]),
    'release' => fn (array $c) => $fencing->release($leases[$c['resource']]),
    'write' => fn (array $c) => $fencing->transaction($leases[$c['resource']], $set($c['sql'])),
    'writeUnder' => fn (array $c) => $guard->transaction(Fence::parse($c['fence']), $set($c['sql'])), // with no look at a clock
    'writeSeveral' => function (array $c) use ($pdo, $set): int {
        $pdo->beginTransaction();
        Guard::enter($pdo, ...array_map(Fence::parse(...), $c['fences']));
        $rows = $set($c['sql'])($pdo);
        $pdo->commit();
        return $rows;
    },
    'writeAfterAnError' => fn (array $c) => $fencing->transaction($leases[$c['resource']], function (PDO $pdo) use ($c): void {
        $pdo->exec($c['sql']);
        try {
            $pdo->exec('SELECT 1 / 0');
        } catch (PDOException) { // as careless code does
        }
    }),
    'writeAndEnd' => fn (array $c) => $fencing->transaction($leases[$c['resource']], fn (PDO $pdo) => $pdo->exec($c['sql'] . '; ROLLBACK')),
    'add' => function (array $c) use ($fencing): void { // one by one, each from what it has read
        for ($i = 0; $i < $c['times']; $i++) {
            $lease = $fencing->acquire($c['resource'], 60.0);
            try {
                $fencing->transaction($lease, function (PDO $pdo) use ($c): void {
                    $left = $pdo->query("SELECT left_over FROM stock WHERE sku = '{$c['sku']}'")->fetchColumn();
                    $pdo->exec('UPDATE stock SET left_over = ' . ($left + 1) . " WHERE sku = '{$c['sku']}'");
                });
            } finally {
                $fencing->release($lease);
            }
        }
    },
    'prefixed' => function (array $c) use ($fencing, $redis): void {
        $redis->setOption(Redis::OPT_PREFIX, 'app:');
        try {
            $fencing->acquire($c['resource']);
        } finally {
            $redis->setOption(Redis::OPT_PREFIX, '');
        }
    },
    'acquireInside' => function (array $c) use ($fencing, $pdo): void {
        $pdo->beginTransaction();
        try {
            $fencing->acquire($c['resource']);
        } finally {
            $pdo->rollBack();
        }
    },
    'issue' => fn (array $c) => (string) $guard->issue($c['resource'], 'php'),
    'set' => fn (array $c) => $redis->set($c['key'], $c['value'], ['NX', 'PX' => 300_000]) === true,
    'unset' => fn (array $c) => $redis->evalSha(sha1($release), [$c['key'], $c['value']], 1) ?: $redis->eval($release, [$c['key'], $c['value']], 1),
];
while (($line = fgets(STDIN)) !== false) {
    $c = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    try {
        $answer = ['ok' => $commands[$c['do']]($c)];
    } catch (Throwable $e) {
        $answer = ['error' => (new ReflectionClass($e))->getShortName(), 'message' => $e->getMessage()];
    }
    echo json_encode($answer, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}
