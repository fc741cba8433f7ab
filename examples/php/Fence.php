<?php

declare(strict_types=1);

namespace Fencing;

/** What one acquisition carries to the stores; its text form is the one of docs/protocol.md. */
final class Fence
{
    /** @param string $token in decimal; a string, so that nothing rounds it */
    public function __construct(
        public readonly string $resource,
        public readonly string $token,
        #[\SensitiveParameter] public readonly string $nonce,
        public readonly string $holder = '',
    ) {
        self::check('resource', $resource, 1, 512);
        self::check('nonce', $nonce, 1, 128);
        self::check('holder', $holder, 0, 256);
        if (!preg_match('/^[1-9][0-9]{0,18}$/D', $token) || (strlen($token) === 19 && strcmp($token, '9223372036854775807') > 0)) {
            throw new \InvalidArgumentException("fencing: token \"$token\" is not a decimal integer from 1 to 2^63-1");
        }
    }

    /** @throws \InvalidArgumentException if the value fits no store */
    public static function check(string $what, #[\SensitiveParameter] string $value, int $least, int $most): void
    {
        if (strlen($value) < $least || strlen($value) > $most || preg_match('/\p{Cc}/u', $value) !== 0) {
            throw new \InvalidArgumentException("fencing: the $what is not $least to $most bytes of UTF-8 without control characters");
        }
    }

    /** @throws \InvalidArgumentException if the text is not the one spelling of a valid fence */
    public static function parse(#[\SensitiveParameter] string $text): self
    {
        $parts = explode(';', $text);
        if (count($parts) !== 4) {
            throw new \InvalidArgumentException('fencing: a fence is resource;token;nonce;holder');
        }
        $fence = new self(rawurldecode($parts[0]), $parts[1], rawurldecode($parts[2]), rawurldecode($parts[3]));
        if ((string) $fence !== $text) {
            throw new \InvalidArgumentException('fencing: the text of the fence is not in its one spelling');
        }
        return $fence;
    }

    public function __toString(): string
    {
        $escape = static fn (string $s): string => strtr(rawurlencode($s), ['%3A' => ':', '%2F' => '/', '%40' => '@']);
        return $escape($this->resource) . ';' . $this->token . ';' . $escape($this->nonce) . ';' . $escape($this->holder);
    }

    /** Keeps the nonce out of dumps: whoever knows it can release the lock and enter. */
    public function __debugInfo(): array
    {
        return ['resource' => $this->resource, 'token' => $this->token, 'holder' => $this->holder];
    }
}

/** The lock while it is held. Presume it lost after the deadline, in seconds of hrtime. */
final class Lease
{
    public function __construct(public readonly Fence $fence, public float $deadline)
    {
    }
}
