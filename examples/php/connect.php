<?php

declare(strict_types=1);

// Connections from REDIS_URL and DATABASE_URL, for the demo and the tests. A service has its own way.

/** @return array<string, string> the parts of a URL, which is never repeated: it may have a password */
function parts(string $variable): array
{
    $parts = parse_url((string) getenv($variable)) ?: [];
    if (!isset($parts['host'])) {
        throw new RuntimeException("$variable is not of the form scheme://user:password@host:port/database");
    }
    return array_map(static fn ($part): string => rawurldecode((string) $part), $parts) + ['port' => '', 'user' => '', 'pass' => '', 'path' => ''];
}

function connectRedis(): Redis
{
    $url = parts('REDIS_URL');
    $redis = new Redis();
    $redis->connect($url['host'], (int) ($url['port'] ?: 6379), 5.0, null, 0, 5.0); // a Redis that hangs ends in an error
    if ($url['pass'] !== '') {
        $redis->auth($url['user'] !== '' ? [$url['user'], $url['pass']] : $url['pass']);
    }
    $redis->select((int) trim($url['path'], '/'));
    return $redis;
}

function connectPostgres(): PDO
{
    $url = parts('DATABASE_URL');
    $dsn = "pgsql:host={$url['host']};port=" . ($url['port'] ?: '5432') . ';dbname=' . ltrim($url['path'], '/') . ';connect_timeout=5';
    return new PDO($dsn, $url['user'], $url['pass'], [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}
