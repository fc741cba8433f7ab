<?php

declare(strict_types=1);

// Holds the PHP client, and PHP's drivers, to the vectors of the protocol. Arguments: their folder and the root of
// the repository. Needs a Redis and a migrated database of its own, see php_test.go.

use Fencing\Fence;
use Fencing\RedisLock;

require __DIR__ . '/../autoload.php';
require __DIR__ . '/../connect.php';

[, $folder, $root] = $argv;
$redis = connectRedis();
$checks = 0;

function load(string $folder, string $name): array
{
    return json_decode(file_get_contents("$folder/$name"), true, 512, JSON_THROW_ON_ERROR);
}

function same(mixed $want, mixed $got, string $where): void
{
    global $checks;
    $checks++;
    if (is_array($want) && isset($want['from'])) {
        $ok = is_int($got) && $got >= $want['from'] && $got <= $want['to'];
    } elseif (is_array($want) && isset($want['like'])) {
        $ok = is_string($got) && preg_match("~{$want['like']}~D", $got) === 1;
    } elseif (is_array($want)) {
        $ok = is_array($got) && count($got) === count($want);
        foreach ($ok ? array_keys($want) : [] as $key) {
            same($want[$key], $got[$key] ?? null, $where);
        }
    } else {
        $ok = $want === $got || $want === null && $got === false; // which is nil of Redis
    }
    if (!$ok) {
        throw new RuntimeException("$where: want " . json_encode($want) . ', got ' . json_encode($got));
    }
}

function refuses(callable $call, string $where): void
{
    try {
        $call();
    } catch (InvalidArgumentException) {
        same(true, true, $where);
        return;
    }
    throw new RuntimeException("$where: was not refused");
}

$keys = load($folder, 'keys.json');
foreach ($keys['vectors'] as $v) {
    same($v['keys'], (new RedisLock($redis, prefix: $v['prefix'], shards: $v['shards']))->keys($v['resource'], $v['nonce']), "keys of {$v['resource']}");
}
foreach ($keys['shared'] as $v) {
    $got = (new RedisLock($redis, names: fn (): array => [$v['lock'], $v['counter']]))->keys($v['resource'], $v['nonce']);
    same(array_intersect_key($v, $got), $got, "shared keys of {$v['resource']}");
}
foreach ($keys['invalid'] as $v) {
    refuses(fn () => new Fence(hex2bin($v['hex']), '1', 'n'), "resource: {$v['why']}");
}

$fences = load($folder, 'fences.json');
foreach ($fences['valid'] as $v) {
    $fence = Fence::parse($v['text']);
    same([$v['resource'], $v['token'], $v['nonce'], $v['holder']], [$fence->resource, $fence->token, $fence->nonce, $fence->holder], $v['text']);
    same($v['text'], (string) new Fence($v['resource'], $v['token'], $v['nonce'], $v['holder']), $v['text']);
}
foreach ($fences['invalid'] as $v) {
    refuses(fn () => Fence::parse($v['text']), "fence: {$v['why']}");
}

$scripts = load($folder, 'scripts.json');
$source = [];
foreach ($scripts['scripts'] as $name => $s) {
    $source[$name] = implode('', array_map(fn (string $file): string => file_get_contents("$root/$file"), $s['files']));
    same($s['sha1'], sha1($source[$name]), "script $name");
}
foreach (['sha1' => 'PUBLISH', 'cluster_sha1' => 'SPUBLISH'] as $sum => $publish) {
    foreach ((new ReflectionProperty(RedisLock::class, 'lua'))->getValue(new RedisLock($redis, publish: $publish)) as $name => $text) {
        same($scripts['scripts'][$name][$sum] ?? $scripts['scripts'][$name]['sha1'], sha1($text), "the script $name of RedisLock, with $publish");
    }
}
$redis->setOption(Redis::OPT_REPLY_LITERAL, true);
foreach ($scripts['histories'] as $h) {
    $redis->flushAll();
    if (isset($h['listens'])) {
        $listener = connectRedis();
        same(['subscribe', $h['listens'], 1], $listener->rawCommand('SUBSCRIBE', $h['listens']), $h['name']);
    }
    foreach ($h['steps'] as $i => $s) {
        $redis->clearLastError();
        $got = isset($s['script']) ? $redis->eval($source[$s['script']], [...$s['keys'], ...$s['args']], count($s['keys'])) : $redis->rawCommand(...$s['command']);
        $where = "{$h['name']}, step " . ($i + 1);
        if (isset($s['reply']['error'])) {
            same([false, true], [$got, str_starts_with((string) $redis->getLastError(), $s['reply']['error'])], "$where: {$redis->getLastError()}");
        } else {
            same($s['reply'], $got, $where);
        }
    }
    $redis->rawCommand('CLIENT', 'KILL', 'TYPE', 'pubsub');
}

foreach (load($folder, 'sql.json')['histories'] as $h) {
    $sessions = [];
    foreach ($h['steps'] as $i => $s) {
        $pdo = $sessions[$s['session'] ?? ''] ??= connectPostgres();
        $where = "{$h['name']}, step " . ($i + 1) . ": {$s['sql']}";
        try {
            $statement = $pdo->query($s['sql']);
            same($s['sqlstate'] ?? '', '', $where);
            if (isset($s['rows'])) {
                same($s['rows'], $statement->fetchAll(PDO::FETCH_NUM), $where);
            }
        } catch (PDOException $e) {
            same($s['sqlstate'] ?? '', $e->errorInfo[0], "$where: {$e->getMessage()}");
            if (isset($s['detail'])) {
                preg_match('/^DETAIL:  (\{.*\})$/m', $e->getMessage(), $match);
                $detail = json_decode($match[1], true, 512, JSON_THROW_ON_ERROR);
                foreach ($s['detail'] as $name => $want) {
                    same($want, $detail[$name], $where);
                }
            }
        }
    }
}
echo "OK: $checks checks\n";
