<?php

declare(strict_types=1);

namespace Fencing;

/**
 * The steps of docs/protocol.md, section 6: a lock in Redis whose fence Postgres checks. Keeps no state between
 * calls, so that one object serves all coroutines; README.md has the binding for Hyperf.
 */
final class Fencing
{
    public function __construct(private RedisLock $lock, private Guard $guard, private string $holder = '')
    {
        Fence::check('holder', $holder, 0, 256);
    }

    /**
     * Waits up to $wait seconds for the lock and raises its fence. Call it outside of a transaction, before the first read.
     *
     * @throws Held|Lost|Blocked|Stale|FencingException|\RedisException|\PDOException
     */
    public function acquire(string $resource, float $wait = 0.0): Lease
    {
        Fence::check('resource', $resource, 1, 512);
        for ($end = self::now() + $wait, $asked = 0;; usleep(random_int(25_000, 75_000))) {
            $nonce = $asked++ ? $nonce : bin2hex(random_bytes(16)); // who asks again with the same one is served in its turn
            try {
                return $this->attempt($resource, $nonce);
            } catch (Held $e) {
                if (self::now() >= $end) {
                    $asked > 1 && $this->giveUp($resource, $nonce);
                    throw $e;
                }
            } catch (Lost | Blocked $e) {
                $asked = 0;
                if (self::now() >= $end) {
                    throw $e;
                }
            }
        }
    }

    private function attempt(string $resource, #[\SensitiveParameter] string $nonce): Lease
    {
        try {
            for ($after = '0', $tries = 0; $tries < 4; $tries++) {
                $deadline = $this->deadline();
                $f = new Fence($resource, $this->lock->acquire($resource, $nonce, $this->holder, $after), $nonce, $this->holder);
                $after = $this->guard->raise($f, min($this->lock->ttlMs, 10_000));
                if ($after === null) {
                    return self::now() < $deadline ? new Lease($f, $deadline) : throw new Lost("fencing: the lease of \"$resource\" ended while its fence was raised");
                }
                // Redis has forgotten: ask it for a token above that of the database.
            }
            throw new Stale("fencing: the database refused $tries tokens of \"$resource\", somebody else keeps raising");
        } catch (\Throwable $e) {
            if ($e instanceof Held && $after === '0') {
                throw $e;
            }
            $this->giveUp($resource, $nonce);
            throw $e instanceof Held ? new Lost("fencing: \"$resource\" went to another before its fence was raised", 0, $e) : $e;
        }
    }

    /** Frees what a reply that was lost, or a release of another since, may have granted. */
    private function giveUp(string $resource, #[\SensitiveParameter] string $nonce): void
    {
        try {
            $this->lock->free($resource, $nonce);
        } catch (\Throwable) { // then it ends with its TTL
        }
    }

    /** Prolongs the lease by its TTL. Call it every third of that while long work is going on. */
    public function renew(Lease $lease): void
    {
        $deadline = $this->deadline();
        if (self::now() >= $lease->deadline || !$this->lock->renew($lease->fence->resource, $lease->fence->nonce)) {
            throw new Lost("fencing: the lease of \"{$lease->fence->resource}\" is lost; stop this work");
        }
        $lease->deadline = $deadline;
    }

    /** Runs $fn(PDO) in a transaction under the fence, see Guard::transaction. @throws Lost if the lease has ended: nothing was written */
    public function transaction(Lease $lease, callable $fn): mixed
    {
        if (self::now() >= $lease->deadline) {
            throw new Lost("fencing: the lease of \"{$lease->fence->resource}\" has ended; nothing was written");
        }
        return $this->guard->transaction($lease->fence, $fn);
    }

    /** Frees the lock. @throws Lost if it was lost before; what was committed is in order all the same */
    public function release(Lease $lease): void
    {
        $lease->deadline = 0.0;
        if (!$this->lock->free($lease->fence->resource, $lease->fence->nonce)) {
            throw new Lost("fencing: the lease of \"{$lease->fence->resource}\" was lost before its release");
        }
    }

    /** The time, by a monotonic clock, from which a lock that is asked for now must be presumed lost. */
    private function deadline(): float
    {
        return self::now() + $this->lock->ttlMs / 1000 * 0.99 - 0.002;
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
