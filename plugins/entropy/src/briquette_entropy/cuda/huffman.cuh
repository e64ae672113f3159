// Huffman coding of one chunk with codebooks of the whole stream; runs of zeros are one symbol, large numbers have raw bits.
// Role: staged kernel of `huffman`: counted and coded by a warp a chunk on GPUs, else by one lane.
// Requires: chunk_coder.cuh; tables made by briquette_entropy/_codebook.py.
// Source: Huffman (1952); canonical codes after Schwartz and Kallick (1964).
#pragma once
#include <briquette_entropy/cuda/chunk_coder.cuh>

namespace briquette_entropy {

struct Huffman {
  // the alphabet of _symbols.py
  static constexpr uint32_t literals = 4096, runs = literals, exact_runs = 16, large = runs + exact_runs + 4 * 13;
  static constexpr uint32_t large_bits = 13, symbols = large + 64 - large_bits + 1;
  static constexpr uint32_t longest_run = 1u << 16;
  static constexpr int primary = 11, limit = 16;

  __device__ __forceinline__ static uint32_t bit_length(uint64_t x) {
#if BRIQUETTE_ENTROPY_HOST || BRIQUETTE_EMULATED
    return x ? 64u - uint32_t(__builtin_clzll(x)) : 0u;
#else
    return 64u - uint32_t(__clzll((long long)(x)));
#endif
  }

  struct Token {
    uint32_t symbol, extra, after;  // bits behind the symbol; the context after it, not limited
    uint64_t raw;
  };
  __device__ __forceinline__ static Token of_number(uint64_t u) {
    const uint32_t bits = bit_length(u);
    if (u < literals) return {uint32_t(u), 0, bits, 0};
    return {large + bits - large_bits, bits - 1, bits, u - (uint64_t(1) << (bits - 1))};
  }
  __device__ __forceinline__ static Token of_run(uint32_t length) {
    if (length < exact_runs) return {runs + length, 0, 0, 0};
    const uint32_t octave = bit_length(length) - 1, quarter = length >> (octave - 2) & 3;
    return {runs + exact_runs + 4 * (octave - 4) + quarter, octave - 2, 0, length & ((1u << (octave - 2)) - 1)};
  }

  /// Hand every token of a chunk with its context to `f`, until that answers false.
  template <class T, class F> __device__ __forceinline__ static bool each_token(const T *in, uint32_t count, uint32_t contexts, F f) {
    uint32_t context = contexts - 1;
    for (uint32_t i = 0; i < count;) {
      const uint64_t u = Codes<T>::number(in[i]);
      const uint32_t begin = i++;
      Token token;
      if (u) token = of_number(u);
      else {
        while (i < count && in[i] == T(0) && i % longest_run) i++;
        token = of_run(i - begin);
      }
      if (!f(token, context)) return false;
      context = token.after < contexts ? token.after : contexts - 1;
    }
    return true;
  }

  /// What is counted most often has a place near the lanes of a GPU's block: small numbers and short runs.
  static constexpr uint32_t hot_symbols = 128;
  __device__ __forceinline__ static uint32_t hot(uint32_t symbol) {
    if (symbol < hot_symbols - exact_runs) return symbol;
    return symbol - runs < exact_runs ? symbol - runs + hot_symbols - exact_runs : hot_symbols;
  }
  __device__ __forceinline__ static uint32_t symbol_of(uint32_t place) {
    return place < hot_symbols - exact_runs ? place : place - (hot_symbols - exact_runs) + runs;
  }

  /// Hand the context and symbol of every token to `counter`.
  template <class T, class F> __device__ __forceinline__ static void survey(const T *in, uint32_t count, uint32_t contexts, F counter) {
    each_token(in, count, contexts, [&](const Token &token, uint32_t context) {
      counter(context, token.symbol);
      return true;
    });
  }

  /// Appends bits, highest first; `full` is set where there is no room.
  struct Writer {
    uint32_t *out;
    uint32_t room, at;
    uint64_t held;
    uint32_t bits;
    __device__ __forceinline__ bool put(uint64_t value, uint32_t length) {  // at most 32 bits
      held |= value << (64 - bits - length);
      bits += length;
      if (bits < 32) return true;
      if (at == room) return false;
      out[at++] = uint32_t(held >> 32);
      held <<= 32;
      bits -= 32;
      return true;
    }
  };

  /// `whole` or more says that it does not shrink; never writes beyond `whole` words.
  template <class T>
  __device__ __forceinline__ static uint32_t encode(const T *in, uint32_t count, uint32_t *out, uint32_t whole, const uint32_t *codes, uint32_t contexts) {
    Writer writer{out, whole - 1, 0, 0, 0};
    const bool fits = each_token(in, count, contexts, [&](const Token &token, uint32_t context) {
      const uint32_t code = codes[uint64_t(context) * symbols + token.symbol];
      if (!writer.put(code >> 5, code & 31)) return false;
      if (token.extra == 0) return true;
      if (token.extra > 32 && !writer.put(token.raw >> 32, token.extra - 32)) return false;
      return writer.put(token.raw & 0xffffffffu, token.extra < 32 ? token.extra : 32);
    });
    if (!fits) return whole;
    if (writer.bits) {
      if (writer.at == writer.room) return whole;
      out[writer.at++] = uint32_t(writer.held >> 32);
    }
    return writer.at;
  }

#if !BRIQUETTE_ENTROPY_HOST
  static constexpr bool warps = true;

  /// Hand a warp the tokens of a chunk, 32 elements at a time: `f(has, token, context)` is called by all lanes, for what
  /// begins at each lane's element, in order. A run that goes on in the next 32 is handed over when it ends, by the first lane.
  /// A token's context is known from the element before it: that is the end of the token before.
  template <class T, class F> __device__ __forceinline__ static void each_group(const T *in, uint32_t count, uint32_t contexts, F f) {
    constexpr uint32_t full = 0xffffffffu, none = 0xffffffffu;
    const uint32_t lane = threadIdx.x % 32;
    uint32_t open = none, open_context = 0, last_bits = 0;
    for (uint32_t base = 0; base < count; base += 32) {
      const uint32_t i = base + lane;
      const bool real = i < count, last = base + 32 >= count;
      const uint64_t u = real ? Codes<T>::number(in[i]) : 0;
      const uint32_t bits = bit_length(u), nonzero = __ballot_sync(full, u != 0);
      const uint32_t below = __shfl_up_sync(full, bits, 1), before = lane ? below : last_bits;
      const uint32_t context = i == 0 || before >= contexts ? contexts - 1 : before;
      last_bits = __shfl_sync(full, bits, 31);
      const bool first_begins = open == none;
      if (open != none && (nonzero || last)) {
        const uint32_t end = nonzero ? base + uint32_t(__ffs(int(nonzero))) - 1 : count;
        if (!f(lane == 0, of_run(end - open), open_context)) return;
        open = none;
      }
      const bool begins = real && u == 0 && (lane ? (nonzero >> (lane - 1) & 1) != 0 : first_begins);
      const uint32_t above = lane < 31 ? nonzero >> (lane + 1) : 0;
      const bool goes_on = begins && !above && !last;
      const uint32_t end = above ? i + uint32_t(__ffs(int(above))) : count;
      Token token = {0, 0, 0, 0};
      if (u) token = of_number(u);
      else if (begins && !goes_on) token = of_run(end - i);
      if (!f(u != 0 || (begins && !goes_on), token, context)) return;
      const uint32_t staying = __ballot_sync(full, goes_on);
      if (staying) {
        const int at = __ffs(int(staying)) - 1;
        open = base + uint32_t(at);
        open_context = __shfl_sync(full, context, at);
      }
    }
  }
  template <class T, class F> __device__ __forceinline__ static void survey_warp(const T *in, uint32_t count, uint32_t contexts, F counter) {
    each_group(in, count, contexts, [&](bool has, const Token &token, uint32_t context) {
      if (has) counter(context, token.symbol);
      return true;
    });
  }

  /// Set `length` bits, 1 to 32, from bit `at` on; the highest of a word comes first.
  __device__ __forceinline__ static void set(uint32_t *words, uint32_t at, uint64_t value, uint32_t length) {
    const uint64_t placed = value << (64 - at % 32 - length);
    atomicOr(words + at / 32, uint32_t(placed >> 32));
    if (uint32_t(placed)) atomicOr(words + at / 32 + 1, uint32_t(placed));
  }
  /// What encode does, by a whole warp: the tokens of 32 elements put their bits together in shared memory.
  template <class T>
  __device__ __forceinline__ static uint32_t encode_warp(const T *in, uint32_t count, uint32_t *out, uint32_t whole, const uint32_t *codes, uint32_t contexts) {
    constexpr uint32_t full = 0xffffffffu, room = (31 + 32 * (limit + 63)) / 32 + 2;
    __shared__ uint32_t parts[warps_a_block][room];
    uint32_t *part = parts[threadIdx.x / 32];
    const uint32_t lane = threadIdx.x % 32;
    uint32_t at = 0, held = 0, filled = 0;  // whole words written, and the bits of the next one
    each_group(in, count, contexts, [&](bool has, const Token &token, uint32_t context) {
      const uint32_t code = has ? codes[uint64_t(context) * symbols + token.symbol] : 0;
      const uint32_t length = has ? (code & 31) + token.extra : 0;
      uint32_t sum = length;
      for (uint32_t step = 1; step < 32; step <<= 1) {
        const uint32_t got = __shfl_up_sync(full, sum, step);
        if (lane >= step) sum += got;
      }
      const uint32_t total = filled + __shfl_sync(full, sum, 31);
      for (uint32_t k = lane; k <= total / 32 + 1; k += 32) part[k] = k ? 0 : held;
      __syncwarp();
      if (has) {
        uint32_t to = filled + sum - length;
        set(part, to, code >> 5, code & 31);
        to += code & 31;
        if (token.extra > 32) {
          set(part, to, token.raw >> 32, token.extra - 32);
          to += token.extra - 32;
        }
        if (token.extra) set(part, to, token.raw & 0xffffffffu, token.extra < 32 ? token.extra : 32);
      }
      __syncwarp();
      for (uint32_t k = lane; k < total / 32; k += 32) if (at + k < whole) out[at + k] = part[k];
      held = part[total / 32];
      at += total / 32;
      filled = total % 32;
      __syncwarp();
      return at < whole;
    });
    const uint32_t words = at + (filled ? 1 : 0);
    if (words >= whole) return whole;
    if (lane == 0 && filled) out[at] = held;
    return words;
  }
#endif

  /// Reads bits, highest first; zeros behind the end, which `ends` finds out.
  struct Reader {
    const uint32_t *in;
    uint32_t words, at;
    uint64_t held;
    uint32_t bits;
    __device__ __forceinline__ void fill() {  // to 33 bits or more
      if (bits > 32) return;
      held |= uint64_t(at < words ? in[at] : 0) << (32 - bits);
      at++;
      bits += 32;
    }
    __device__ __forceinline__ void drop(uint32_t length) { held <<= length; bits -= length; }
    __device__ __forceinline__ uint64_t take(uint32_t length) {  // 1 to 32 bits
      fill();
      const uint64_t value = held >> (64 - length);
      drop(length);
      return value;
    }
    /// Whether what was read ends in the last word, and zeros follow.
    __device__ __forceinline__ bool ends() const {
      const uint64_t used = 32 * uint64_t(at) - bits;
      if ((used + 31) / 32 != words) return false;
      return used % 32 == 0 || uint32_t(in[words - 1] << (used % 32)) == 0;
    }
  };

  template <class T>
  __device__ __forceinline__ static bool decode(const uint32_t *in, uint32_t words, T *out, uint32_t count, const uint32_t *table, uint32_t contexts) {
    Reader reader{in, words, 0, 0, 0};
    uint32_t context = contexts - 1;
    for (uint32_t i = 0; i < count;) {
      reader.fill();
      uint32_t entry = table[context << primary | uint32_t(reader.held >> (64 - primary))];
      if (entry >> 31) entry = table[(entry & 0x7fffffffu) + (uint32_t(reader.held >> (64 - limit)) & ((1u << (limit - primary)) - 1))];
      const uint32_t length = entry & 31, symbol = entry >> 14;
      if (length == 0) return false;
      reader.drop(length);
      context = entry >> 11 & 7;
      if (symbol < literals) {
        out[i++] = Codes<T>::code(symbol);
        continue;
      }
      const uint32_t extra = entry >> 5 & 63;
      uint64_t value = 0;
      if (extra > 32) value = reader.take(extra - 32) << 32;
      if (extra) value |= reader.take(extra < 32 ? extra : 32);
      if (symbol >= large) {
        out[i++] = Codes<T>::code((uint64_t(1) << extra) + value);
        continue;
      }
      const uint32_t run = symbol - runs;
      const uint64_t length_of = run < exact_runs ? run : (uint64_t(4 + (run & 3)) << extra) + value;
      if (length_of == 0 || length_of > count - i) return false;
      for (const uint32_t end = i + uint32_t(length_of); i < end; i++) out[i] = T(0);
    }
    return reader.ends();
  }
};

}  // namespace briquette_entropy
