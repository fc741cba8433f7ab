<?php

declare(strict_types=1);

// Connections from REDIS_URL and DATABASE_URL, for the demo and the tests. A service has its own way.

/** @return array<string, string> the parts of a URL, which is never repeated: it may have a password */
function parts(string $variable, string ...$schemes): array
{
    $parts = parse_url((string) getenv($variable)) ?: [];
    if (!isset($parts['host']) || !in_array($parts['scheme'] ?? '', $schemes, true)) {
        throw new RuntimeException((getenv($variable) ? "$variable is not of the form " : "set $variable to ") . "$schemes[0]://user:password@host:port/database");
    }
    return array_map(static fn ($part): string => rawurldecode((string) $part), $parts) + ['port' => '', 'user' => '', 'pass' => '', 'path' => ''];
}

function connectRedis(): Redis
{
    $url = parts('REDIS_URL', 'redis', 'rediss');
    [$host, $port] = [($url['scheme'] === 'rediss' ? 'tls://' : '') . $url['host'], (int) ($url['port'] ?: 6379)];
    $redis = new Redis();
    try {
        $redis->connect($host, $port, 5.0, null, 0, 5.0); // a Redis that hangs ends in an error
    } catch (RedisException $e) {
        throw new RuntimeException("no Redis at $host:$port, where REDIS_URL says: " . $e->getMessage(), 0, $e);
    }
    if ($url['pass'] !== '') {
        $redis->auth($url['user'] !== '' ? [$url['user'], $url['pass']] : $url['pass']);
    }
    $redis->select((int) trim($url['path'], '/'));
    return $redis;
}

function connectPostgres(): PDO
{
    $url = parts('DATABASE_URL', 'postgres', 'postgresql');
    parse_str((string) parse_url((string) getenv('DATABASE_URL'), PHP_URL_QUERY), $options); // such as sslmode, which must not get lost
    $options += ['host' => $url['host'], 'port' => $url['port'] ?: '5432', 'dbname' => ltrim($url['path'], '/'), 'connect_timeout' => '5'];
    $dsn = array_map(static fn (string $name, string $value): string => "$name='" . addcslashes($value, "'\\") . "'", array_keys($options), $options);
    return new PDO('pgsql:' . implode(';', $dsn), $url['user'], $url['pass'], [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}
