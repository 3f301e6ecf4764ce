// The table of collective kernels in liblonghaul_cuda.so: plain types, compiled on both sides of
// dlopen (base/cuda/table.h). Every function queues work on `stream` (a cudaStream_t of `device`),
// does not block, may be captured in a CUDA graph, and returns a CUDA runtime error code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::collective {

inline constexpr uint32_t kMostParts = 64;

// dtype: 1 fp32, 2 fp16, 3 bf16.
struct SumArgs {
  const void* parts_dev[kMostParts];
  void* out_dev;
  uint64_t count;
  uint32_t parts, dtype;
  uint32_t largest;  // 1: the maximum of the parts' elements; 0: their sum
};

// Copies 8-byte words to host memory that the device can address.
struct ReadArgs {
  const void* from_dev[2 * kMostParts];
  uint64_t* to;
  uint32_t count;
};

// One rank's side of an exchange with one peer through rings of slots in host memory
// (mapped/ring.h). There is a block of threads for each peer and lane: half of its threads fill
// this rank's slots, the other half empty the peer's slots. All pointers are device addresses.
struct ExchangePeer {
  const void* send_dev;
  uint64_t send_most;        // bytes: the exact length if size_dev is null, else the maximum
  const uint64_t* size_dev;  // not null: the length is size_base + *size_dev, at most send_most
  uint64_t size_base;
  void* receive_dev;
  uint64_t receive_most;  // bytes: the exact length if receive_any is 0, else the maximum
  uint32_t receive_any;
  uint32_t peer;                       // the peer's rank, for `fault`
  uint32_t send_lanes, receive_lanes;  // lanes in use; 0: nothing is sent, or received
  uint64_t send_chunk, receive_chunk;  // bytes used in each slot
  std::byte* send_slots;               // [lane][slot]
  const std::byte* receive_slots;
  uint64_t* send_filled;           // [lane][slot], one cache line each: written by this rank
  const uint64_t* receive_filled;  // written by the peer
  const uint64_t* send_emptied;    // [lane], one cache line each: written by the peer
  uint64_t* receive_emptied;       // written by this rank
  uint64_t* sent;  // [lane], one cache line each: bytes sent with size_dev, for this kind of call
  uint64_t* steps_dev;  // [lane][kStepWords]: slots filled, slots emptied, then bytes sent by kind
};
inline constexpr uint32_t kMostExchangePeers = 15;
inline constexpr uint32_t kKindsOfCall = 6, kStepWords = 2 + kKindsOfCall;
struct ExchangeArgs {
  ExchangePeer peers[kMostExchangePeers];
  uint32_t peer_count;
  uint32_t kind;        // kind of call, below kKindsOfCall
  uint32_t lanes;       // maximum of the peers' send_lanes and receive_lanes
  uint32_t slots;       // per lane
  uint32_t line_words;  // distance of two flags, in 8-byte words
  uint64_t slot_bytes;
  const uint64_t* ended;  // not 0: the group has ended, and every wait stops
  uint64_t* fault;        // set to 1 + the rank whose message had an unexpected length
};

struct KernelTable {
  int (*sum)(int device, const SumArgs* args, void* stream);
  int (*read)(int device, const ReadArgs* args, void* stream);
  int (*zero)(int device, void* to_dev, uint64_t bytes, void* stream);
  int (*exchange)(int device, const ExchangeArgs* args, void* stream);
};

}  // namespace longhaul::collective
