<?php

declare(strict_types=1);

namespace Fencing;

class FencingException extends \RuntimeException
{
}

/** Another holder has the lock. */
final class Held extends FencingException
{
}

/** The lease ended before it was released, or the lock is another's. */
final class Lost extends FencingException
{
}

/** UF001: superseded by a later fence. Nothing was written; never retry, acquire again. */
final class Stale extends FencingException
{
}

/** UF002: the database has no fence of the resource, or an earlier one. Nothing was written. */
final class NotRaised extends FencingException
{
}

/** UF003, UF004: a write outside of the fence that it needs. Nothing was written. */
final class Unguarded extends FencingException
{
}

/** 55P03: an open transaction of an earlier fence blocks the raise; the message names its backend. */
final class Blocked extends FencingException
{
}

/** COMMIT was sent and its outcome is not known: read before you write again. */
final class CommitUnknown extends FencingException
{
}
