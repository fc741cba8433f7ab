<?php

declare(strict_types=1);

namespace Fencing;

/** The scripts of docs/protocol.md, sections 2 and 3. Keeps no state between calls. */
final class RedisLock
{
    /** @var array<string, string> exact copies of those that Go ships */
    private array $lua = [];

    /**
     * @param object $redis \Redis, \RedisCluster or a pool's proxy of one, without OPT_PREFIX
     * @param int $ttlMs how long others wait for a holder that died, 10 to 86400000
     * @param null|\Closure(string): array{string, string} $names lock and counter key of a resource, to exclude another library's lock
     * @param string $publish SPUBLISH in Cluster
     */
    public function __construct(
        private object $redis,
        public readonly int $ttlMs = 30_000,
        private string $prefix = 'fencing',
        private int $shards = 256,
        private ?\Closure $names = null,
        string $publish = 'PUBLISH',
    ) {
        Fence::check('prefix', $prefix, 1, 512);
        if ($ttlMs < 10 || $ttlMs > 86_400_000 || $shards < 1 || $shards > 16384 || strpbrk($prefix, '{}') !== false) {
            throw new \InvalidArgumentException("fencing: TTL $ttlMs ms, $shards shards or prefix \"$prefix\" makes no sense");
        }
        if (!in_array($publish, ['PUBLISH', 'SPUBLISH'], true)) {
            throw new \InvalidArgumentException("fencing: \"$publish\" is neither PUBLISH nor SPUBLISH");
        }
        foreach (['acquire' => ['acquire'], 'join' => ['join'], 'leave' => [strtolower($publish), 'leave']] as $name => $files) {
            $this->lua[$name] = implode('', array_map(fn (string $file): string => file_get_contents(__DIR__ . "/lua/$file.lua"), $files));
        }
    }

    /**
     * Takes the lock and returns its token, one above $after. The nonce that has the lock gets it again.
     *
     * @throws Held|FencingException|\RedisException after all but Held, call free
     */
    public function acquire(string $resource, #[\SensitiveParameter] string $nonce, string $holder, string $after = '0'): string
    {
        if ((string) $this->redis->getOption(\Redis::OPT_PREFIX) !== '') {
            throw new \LogicException('fencing: this Redis connection has OPT_PREFIX, so PHP would have other locks than everybody else; use one without');
        }
        $k = $this->keys($resource, $nonce);
        $more = $after === '0' && !$this->names ? [] : ['', $after, '72057594037927936', $this->names ? 'shared' : 'own'];
        $reply = $this->run('acquire', [$k['lock'], $k['counter'], $k['released']], [$nonce, $holder, (string) $this->ttlMs, ...$more]);
        if (is_array($reply) && $reply[0] === 0) {
            throw new Held("fencing: \"$resource\" is held by " . ($reply[1] ?: 'an unnamed holder') . ", expires in $reply[2] ms unless renewed");
        }
        if (!is_int($reply) && !is_string($reply)) { // the proxy of a pool would ask another connection for its last error
            throw new FencingException("fencing: acquire \"$resource\" above $after: " . ($reply === false && $this->redis instanceof \Redis ? $this->redis->getLastError() : json_encode($reply)));
        }
        return (string) $reply;
    }

    /** Prolongs the lock; false if the nonce does not have it. Never creates it. */
    public function renew(string $resource, #[\SensitiveParameter] string $nonce): bool
    {
        $k = $this->keys($resource, $nonce);
        return $this->run('join', [$k['lock'], $k['members']], [$nonce, (string) $this->ttlMs]) === 1; // in whatever state it is
    }

    /** Frees the lock; false if the nonce did not have it. Safe to repeat. */
    public function free(string $resource, #[\SensitiveParameter] string $nonce): bool
    {
        $k = $this->keys($resource, $nonce);
        return $this->run('leave', [$k['lock'], $k['members'], $k['released']], [$nonce, $nonce]) === 1;
    }

    /** @return array{lock: string, counter: string, released: string, members: string, queue: string, alive: string} */
    public function keys(string $resource, #[\SensitiveParameter] string $nonce): array
    {
        if ($this->names) {
            [$lock, $counter] = ($this->names)($resource);
            return ['lock' => $lock, 'counter' => $counter, 'released' => "$counter:released:$nonce", 'members' => "$counter:members:$resource", 'queue' => "$counter:queue:$resource", 'alive' => "$counter:alive:$resource"];
        }
        $tag = '{' . hexdec(hash('fnv1a32', $resource)) % $this->shards . '}';
        $key = fn (string $kind, string $name): string => "$this->prefix:$kind:$tag:$name";
        return ['lock' => $key('lock', $resource), 'counter' => "$this->prefix:fence:$tag", 'released' => $key('released', $nonce), 'members' => $key('members', $resource), 'queue' => $key('queue', $resource), 'alive' => $key('alive', $resource)];
    }

    /** Returns false for an error. That the server does not know the script is one: so its text is sent after any, which is safe. */
    private function run(string $name, #[\SensitiveParameter] array $keys, #[\SensitiveParameter] array $args): mixed
    {
        $all = [...$keys, ...$args];
        $reply = $this->redis->evalSha(sha1($this->lua[$name]), $all, count($keys));
        return $reply !== false ? $reply : $this->redis->eval($this->lua[$name], $all, count($keys));
    }
}
