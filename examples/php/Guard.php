<?php

declare(strict_types=1);

namespace Fencing;

/** The fence schema in Postgres, sections 4 and 5 of docs/protocol.md. Keeps no state between calls. */
final class Guard
{
    /** @param \PDO|\Closure(): \PDO $pdo a function where the connection depends on the coroutine */
    public function __construct(private \PDO|\Closure $pdo)
    {
    }

    /**
     * Makes a fence the current one, before the first read. Returns null, or the token above which a new one has to
     * be: the database has seen a later fence.
     *
     * @throws Blocked|\PDOException
     */
    public function raise(Fence $f, int $timeoutMs = 10_000): ?string
    {
        $now = $this->alone('SELECT token::text, nonce FROM fencing.raise(?, ?, ?, ?, ?)', [$f->resource, $f->token, $f->nonce, $f->holder, $timeoutMs]);
        return $now['token'] === $f->token && $now['nonce'] === $f->nonce ? null : $now['token'];
    }

    /** Mints a fence and raises it: for a lock without tokens, after its acquisition and before the first read. */
    public function issue(string $resource, string $holder = ''): Fence
    {
        $nonce = bin2hex(random_bytes(16));
        $now = $this->alone('SELECT token::text FROM fencing.issue(?, ?, ?)', [$resource, $nonce, $holder]);
        return new Fence($resource, $now['token'], $nonce, $holder);
    }

    /** Enters fences in a transaction that the caller has begun: its first statement, before any savepoint. */
    public static function enter(\PDO $pdo, Fence ...$fences): void
    {
        if (!$pdo->inTransaction()) {
            throw new \LogicException('fencing: enter outside of a transaction protects nothing');
        }
        $all = static fn (string $part): string => implode("\n", array_column($fences, $part)); // no part has a line feed
        try {
            $pdo->prepare("SELECT fencing.enter_all(string_to_array(?, E'\\n'), string_to_array(?, E'\\n')::bigint[], string_to_array(?, E'\\n'), 5000)")
                ->execute([$all('resource'), $all('token'), $all('nonce')]);
        } catch (\PDOException $e) {
            throw self::meaning($e);
        }
    }

    /**
     * Runs $fn(PDO) in a transaction under the fence and returns its result. A 40001 or 40P01 comes through as
     * \PDOException: call it again.
     *
     * @throws Stale|NotRaised|Unguarded|CommitUnknown|\PDOException
     */
    public function transaction(Fence $f, callable $fn): mixed
    {
        $pdo = $this->pdo();
        $pdo->beginTransaction();
        try {
            self::enter($pdo, $f);
            $result = $fn($pdo);
            // COMMIT of a failed transaction is no error, and $fn may have caught what failed: this fails then.
            $held = (string) $pdo->query("SELECT current_setting('fencing.held', true)")->fetchColumn();
            if (!str_contains($held, "\n$f->resource\n")) {
                throw new \LogicException('fencing: the function has ended the transaction that it was called in; leave BEGIN, COMMIT and ROLLBACK to its caller');
            }
        } catch (\Throwable $e) {
            try {
                $pdo->rollBack();
            } catch (\PDOException) { // it is over, or the connection is
            }
            throw self::meaning($e);
        }
        try {
            $pdo->commit();
        } catch (\PDOException $e) { // only these codes are the server's word on the transaction
            throw preg_match('/^(23|40(?!003)|P0|UF)/', self::state($e)) ? self::meaning($e)
                : new CommitUnknown('fencing: COMMIT got no answer; read before you write again: ' . $e->getMessage(), 0, $e);
        }
        return $result;
    }

    /** Runs a statement that is its own transaction, committed when this returns. */
    private function alone(string $sql, #[\SensitiveParameter] array $args): array
    {
        $pdo = $this->pdo();
        if ($pdo->inTransaction()) {
            throw new \LogicException('fencing: a fence is raised before the transaction begins, not inside of it');
        }
        try {
            $statement = $pdo->prepare($sql);
            $statement->execute($args);
            return $statement->fetch(\PDO::FETCH_ASSOC);
        } catch (\PDOException $e) {
            // Only of a raise: in the caller's own transaction it is a lock of theirs.
            throw self::state($e) === '55P03' ? new Blocked($e->getMessage(), 0, $e) : self::meaning($e);
        }
    }

    private function pdo(): \PDO
    {
        return $this->pdo instanceof \PDO ? $this->pdo : ($this->pdo)();
    }

    private static function state(\Throwable $e): string
    {
        return $e instanceof \PDOException ? (string) ($e->errorInfo[0] ?? '') : '';
    }

    private static function meaning(\Throwable $e): \Throwable
    {
        return match (self::state($e)) {
            'UF001' => new Stale($e->getMessage(), 0, $e),
            'UF002' => new NotRaised($e->getMessage(), 0, $e),
            'UF003', 'UF004' => new Unguarded($e->getMessage(), 0, $e),
            default => $e,
        };
    }
}
