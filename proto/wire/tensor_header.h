// The tensor header: 96 bytes before every chunk of an encoded tensor and every control message
// between stages. Workers write and read it; transports do not. Little-endian. In the table, "up"
// is to the previous stage and "down" to the next one.
//
//   offset size  field
//        0    4  magic "LHTN"
//        4    2  version (1)
//        6    1  kind              1 tensor chunk, 2 norm up, 3 step control down, 5 message state,
//                                  both ways, 6 matrix digest, both ways, 7 activation taken, up,
//                                  8 chunk of a replica's message, both ways; 4 is free
//        7    1  flags             bit 0: validation; bit 1, only with bit 0: its tensors are fp32
//        8    8  run               first 8 bytes of SHA-256 of the run's id
//       16    8  epoch
//       24    8  step
//       32    4  replica           of the sender
//       36    4  microbatch        kind 8: number of the message on its link, modulo 2^32
//       40    4  edge
//       44    1  direction         0 forward, 1 backward
//       45    1  reserved, zero
//       46    2  extension_bytes   sample ids and such, after this header; zero in version 1
//       48    4  shard             now always 0; for tensors sent in parts by several ranks
//       52    4  shards            now always 1
//       56    4  slice             of the sequence
//       60    4  slices
//       64    8  blob_bytes        of the whole encoded tensor
//       72    8  chunk_offset      of this chunk in the blob
//       80    4  chunk
//       84    4  chunks
//       88    8  reserved, zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::wire {

inline constexpr size_t kTensorHeaderBytes = 96;
inline constexpr uint16_t kTensorVersion = 1;

enum class TensorKind : uint8_t {
  kChunk = 1,
  kNormUp = 2,
  kStepControl = 3,
  kMessageState = 5,
  kMatrixDigest = 6,
  kTaken = 7,           // the next stage took an activation of a validation; no body
  kReplicaMessage = 8,  // a chunk of a message of transport/replicas
};

struct TensorHeader {
  TensorKind kind = TensorKind::kChunk;
  bool validation = false;
  bool clean = false;  // a validation that sends its tensors as fp32
  uint64_t run = 0;
  Epoch epoch;
  Step step;
  uint32_t replica = 0;
  Microbatch microbatch;
  EdgeId edge;
  Direction direction = Direction::kForward;
  uint16_t extension_bytes = 0;
  uint32_t shard = 0, shards = 1, slice = 0, slices = 1;
  uint64_t blob_bytes = 0, chunk_offset = 0;
  uint32_t chunk = 0, chunks = 1;
  friend bool operator==(const TensorHeader&, const TensorHeader&) = default;
};

// Returns the header's field `run` for a run.
uint64_t RunTag(const RunId& run);

void EncodeTensorHeader(const TensorHeader& header, std::span<std::byte, kTensorHeaderBytes> out);
// Checks only the form: magic, version, kind, direction, chunk < chunks, consistent ranges. The
// caller checks whether the run expects such a message. kUnimplemented: another version. Else
// kInvalidArgument.
StatusOr<TensorHeader> DecodeTensorHeader(std::span<const std::byte> bytes);

}  // namespace longhaul::wire
