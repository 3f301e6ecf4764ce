// Threads that a caller lends to a codec for one call (Context::parallel), to speed up large
// tensors. The codec's results do not depend on the number of threads.
//
//   class Pool final : public Parallel { ... };   // uses the threads that the program has
//   context.parallel = &pool;
//   LH_RETURN_IF_ERROR(codec->Encode(view, context, scratch, blob, &result));
//
// Threads: a codec calls For on the thread of its Encode or Decode, and never inside a body.
#pragma once

#include <absl/functional/function_ref.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace longhaul::codec {

class Parallel {
 public:
  virtual ~Parallel() = default;

  // Returns the maximum number of calls of `body` that For runs at the same time, at least 1.
  virtual size_t threads() const = 0;
  // Calls body(0), ..., body(count - 1), each once, in any order, on any threads, including the
  // calling one. Returns when all calls have returned. Cannot fail. A body must not throw, must not
  // wait for another call of the body, and takes milliseconds at most.
  virtual void For(size_t count, absl::FunctionRef<void(size_t)> body) = 0;
};

// Calls body(first, end) for disjoint ranges that together are [0, count), on threads of
// `parallel`. There is only one range, on the calling thread, if `parallel` is null or `count` is
// at most `small`. Every range but the last ends at a multiple of `grain`, which must not be 0.
template <class Body>
void ForRanges(Parallel* parallel, uint64_t count, uint64_t grain, uint64_t small,
               const Body& body) {
  // Several ranges for each thread, so that a slow or late thread delays the others less.
  const uint64_t pieces =
      parallel == nullptr || count <= small ? 1 : uint64_t{parallel->threads()} * 4;
  const uint64_t wanted = std::max((count + pieces - 1) / pieces, small);
  const uint64_t step = (wanted + grain - 1) / grain * grain;
  if (pieces == 1 || step >= count) {
    body(uint64_t{0}, count);
    return;
  }
  parallel->For((count + step - 1) / step,
                [&](size_t k) { body(k * step, std::min(count, (k + 1) * step)); });
}

// Raises *largest to `value` if `value` is larger. Several threads may call it at the same time.
inline void RaiseTo(uint32_t value, std::atomic<uint32_t>* largest) {
  uint32_t seen = *largest;
  while (seen < value && !largest->compare_exchange_weak(seen, value)) {
  }
}

}  // namespace longhaul::codec
