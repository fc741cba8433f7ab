<?php

declare(strict_types=1);

// For programs without Composer.
foreach (['errors', 'Fence', 'RedisLock', 'Guard', 'Fencing'] as $file) {
    require_once __DIR__ . "/$file.php";
}
