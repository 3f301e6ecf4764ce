// Messages through rings of slots in host memory that the devices of a group map (kernel_table.h,
// mapped/ring.h).
//
// A slot's word in `filled` says what is in it: the number of the step that filled it, whether the
// message ends there, and how many bytes there are. Whoever empties slots counts them in `emptied`.
// The words have one writer each. Steps are numbered on through all calls, in device memory, so
// that a recorded call may be replayed.
#include <cuda_runtime_api.h>

#include "transport/collective/engine/kernel_table.h"

namespace longhaul::collective {
namespace {

constexpr unsigned kHalf = 256;   // threads that send, and as many that receive
constexpr unsigned kVectors = 8;  // of 16 bytes that a thread has on their way
constexpr unsigned kLooks = 256;  // at a flag, between two looks at whether the group has ended
constexpr uint64_t kLast = uint64_t{1} << 31;

// Loads from host memory, which the GPU must not cache.
__device__ uint4 Load(const std::byte* from) {
  uint4 words;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}
__device__ void Store(std::byte* to, uint4 words) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ uint64_t LoadWord(const uint64_t* from) {
  uint64_t word;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
// After all that came before it.
__device__ void StoreWord(uint64_t* to, uint64_t word) {
  __threadfence_system();
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// All threads of one half; `half` is 1 or 2, which are the numbers of their barriers.
__device__ void Meet(unsigned half) {
  asm volatile("bar.sync %0, %1;" ::"r"(half), "r"(kHalf) : "memory");
}

// One thread waits until `done(word)`; false: the group has ended.
template <class Done>
__device__ bool Await(const uint64_t* word, const uint64_t* ended, uint64_t* value,
                      const Done& done) {
  for (unsigned look = 1;; ++look) {
    *value = LoadWord(word);
    if (done(*value)) return true;
    if (look % kLooks == 0 && LoadWord(ended) != 0) return false;
  }
}

// Sixteen bytes of device memory of any alignment, of which `count` are there.
__device__ uint4 Gather(const std::byte* from, uint64_t count) {
  uint32_t words[4] = {};
  for (unsigned k = 0; k < 16 && k < count; ++k) {
    words[k / 4] |= static_cast<uint32_t>(from[k]) << k % 4 * 8;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ void Scatter(std::byte* to, uint64_t count, uint4 all) {
  const uint32_t words[4] = {all.x, all.y, all.z, all.w};
  for (unsigned k = 0; k < 16 && k < count; ++k) {
    to[k] = static_cast<std::byte>(words[k / 4] >> k % 4 * 8);
  }
}

// `thread` of kHalf. The slot begins at 16 bytes.
__device__ void Fill(std::byte* slot, const std::byte* from, uint64_t bytes, unsigned thread) {
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const uint64_t vectors = aligned ? bytes / 16 : 0;
  const auto* const source = reinterpret_cast<const uint4*>(from);
  for (uint64_t k = thread; k < vectors; k += kHalf * kVectors) {
    uint4 words[kVectors];
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      if (k + v * kHalf < vectors) words[v] = source[k + v * kHalf];
    }
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      if (k + v * kHalf < vectors) Store(slot + (k + v * kHalf) * 16, words[v]);
    }
  }
  for (uint64_t k = vectors + thread; k * 16 < bytes; k += kHalf) {
    Store(slot + k * 16, Gather(from + k * 16, bytes - k * 16));
  }
}
__device__ void Empty(std::byte* to, const std::byte* slot, uint64_t bytes, unsigned thread) {
  const bool aligned = reinterpret_cast<uintptr_t>(to) % 16 == 0;
  const uint64_t vectors = aligned ? bytes / 16 : 0;
  auto* const target = reinterpret_cast<uint4*>(to);
  for (uint64_t k = thread; k < vectors; k += kHalf * kVectors) {
    uint4 words[kVectors];
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      if (k + v * kHalf < vectors) words[v] = Load(slot + (k + v * kHalf) * 16);
    }
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) {
      if (k + v * kHalf < vectors) target[k + v * kHalf] = words[v];
    }
  }
  for (uint64_t k = vectors + thread; k * 16 < bytes; k += kHalf) {
    Scatter(to + k * 16, bytes - k * 16, Load(slot + k * 16));
  }
}

// What the threads of a half know of each other.
struct Shared {
  uint64_t word;
  bool ended;
};

__device__ void Send(const ExchangeArgs& args, const ExchangePeer& peer, unsigned lane,
                     unsigned thread, Shared* shared) {
  if (thread == 0) {
    shared->ended = false;
    shared->word = peer.size_dev == nullptr ? peer.send_most
                                            : min(peer.send_most, peer.size_base + *peer.size_dev);
  }
  Meet(1);
  const uint64_t bytes = shared->word;
  uint64_t* const steps = peer.steps_dev + uint64_t{lane} * kStepWords;
  uint64_t step = steps[0];
  uint64_t sent = 0;
  const uint64_t stride = peer.send_chunk * peer.send_lanes;
  uint64_t begin = peer.send_chunk * lane;
  for (bool last = false; !last; begin += stride, ++step) {
    const uint64_t count = begin < bytes ? min(peer.send_chunk, bytes - begin) : 0;
    last = begin + stride >= bytes;
    if (thread == 0 && step >= args.slots) {
      uint64_t emptied;
      shared->ended = !Await(peer.send_emptied + uint64_t{lane} * args.line_words, args.ended,
                             &emptied, [&](uint64_t word) { return word + args.slots > step; });
    }
    Meet(1);
    if (shared->ended) return;
    const uint64_t slot = uint64_t{lane} * args.slots + step % args.slots;
    Fill(peer.send_slots + slot * args.slot_bytes,
         static_cast<const std::byte*>(peer.send_dev) + begin, count, thread);
    Meet(1);
    if (thread == 0) {
      StoreWord(peer.send_filled + slot * args.line_words,
                (step + 1) << 32 | (last ? kLast : 0) | count);
    }
    sent += count;
  }
  if (thread != 0) return;
  steps[0] = step;
  if (peer.size_dev == nullptr) return;
  uint64_t* const all = steps + 2 + args.kind;
  *all += sent;
  StoreWord(peer.sent + uint64_t{lane} * args.line_words, *all);
}

__device__ void Receive(const ExchangeArgs& args, const ExchangePeer& peer, unsigned lane,
                        unsigned thread, Shared* shared) {
  if (thread == 0) shared->ended = false;
  uint64_t* const steps = peer.steps_dev + uint64_t{lane} * kStepWords;
  uint64_t step = steps[1];
  const uint64_t stride = peer.receive_chunk * peer.receive_lanes;
  uint64_t begin = peer.receive_chunk * lane;
  for (bool last = false; !last; begin += stride, ++step) {
    const uint64_t slot = uint64_t{lane} * args.slots + step % args.slots;
    if (thread == 0) {
      uint64_t filled;
      const bool there =
          Await(peer.receive_filled + slot * args.line_words, args.ended, &filled,
                [&](uint64_t word) { return word >> 32 == ((step + 1) & 0xffffffff); });
      shared->ended = !there;
      shared->word = filled;
    }
    Meet(2);
    if (shared->ended) return;
    const uint64_t room =
        begin < peer.receive_most ? min(peer.receive_chunk, peer.receive_most - begin) : 0;
    last = (shared->word & kLast) != 0;
    const uint64_t count = shared->word & (kLast - 1);
    const bool ends = begin + stride >= peer.receive_most;
    const bool fits = count <= room && (last || !ends) &&
                      (peer.receive_any != 0 || (count == room && last == ends));
    if (fits) {
      Empty(static_cast<std::byte*>(peer.receive_dev) + begin,
            peer.receive_slots + slot * args.slot_bytes, count, thread);
    } else if (thread == 0) {
      StoreWord(args.fault, uint64_t{1} + peer.peer);
    }
    Meet(2);
    if (thread == 0) {
      StoreWord(peer.receive_emptied + uint64_t{lane} * args.line_words, step + 1);
    }
  }
  if (thread == 0) steps[1] = step;
}

__global__ void __launch_bounds__(2 * kHalf)
    ExchangeKernel(const __grid_constant__ ExchangeArgs args) {
  __shared__ Shared shared[2];
  const ExchangePeer& peer = args.peers[blockIdx.y];
  const unsigned lane = blockIdx.x;
  if (threadIdx.x < kHalf) {
    if (lane < peer.send_lanes) Send(args, peer, lane, threadIdx.x, &shared[0]);
  } else {
    if (lane < peer.receive_lanes) Receive(args, peer, lane, threadIdx.x - kHalf, &shared[1]);
  }
}

}  // namespace

int LaunchExchange(int device, const ExchangeArgs* args, void* stream);
int LaunchExchange(int device, const ExchangeArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return cudaGetLastError();
  const dim3 blocks(args->lanes, args->peer_count);
  ExchangeKernel<<<blocks, 2 * kHalf, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  return cudaGetLastError();
}

}  // namespace longhaul::collective
