// Plain loops over plain arrays, compiled for the baseline and once more for
// AVX2; the system's loader picks. Without FMA (AVX2 alone brings none) and with
// sums in a written order, every copy gives the same bits.
#pragma once

// Sanitizers instrument the code that picks, which runs before they are ready.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define REGARD_EACH_INSTRUCTION_SET __attribute__((target_clones("avx2", "default")))
#else
#define REGARD_EACH_INSTRUCTION_SET
#endif

// For what such a loop calls: left out of line, it would be baseline code.
#define REGARD_INLINE [[gnu::always_inline]] inline
