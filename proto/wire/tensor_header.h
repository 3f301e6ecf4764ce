// The tensor header: 96 bytes before every chunk of an encoded tensor (a blob), and before the body
// of every control message between stages. Workers write and read the header; transports do not.
// Little-endian. In the table, "up" is to the previous stage and "down" to the next one.
//
//   offset size  field
//        0    4  magic "LHTN"
//        4    2  version (2)
//        6    1  kind              TensorKind below; 4 is free
//        7    1  flags             value 1: of a validation pass; value 2, only with value 1:
//                                  the pass sends fp32 tensors, without the edge's codecs; value
//                                  4 alone: of a sampling pass, which sends fp32 tensors, too
//        8    8  stamp             of the assignment that the sender carries out (Stamp,
//        base/ids.h)
//       16    8  epoch             number of the attempt at the run (Epoch, base/ids.h), for people
//       24    8  step              optimizer step
//       32    4  replica           data-parallel replica of the sender, from 0
//       36    4  microbatch        from 0; kind 8: number of the message on its link, modulo 2^32
//       40    4  edge              EdgeId, base/ids.h
//       44    1  direction         0 forward (activations), 1 backward (gradients)
//       45    1  reserved, zero
//       46    2  extension_bytes   size of an extension after this header; zero in version 2
//       48    4  shard             now always 0; for tensors sent in parts by several ranks
//       52    4  shards            now always 1
//       56    4  slice             number of the sequence chunk (Slice, base/ids.h), from 0
//       60    4  slices            number of slices of a microbatch
//       64    8  blob_bytes        size of the whole blob
//       72    8  chunk_offset      offset of this chunk in the blob
//       80    4  chunk             number of this chunk, from 0
//       84    4  chunks            number of chunks of the blob
//       88    4  number            of a sampling pass among those after its step, from 0; else zero
//       92    4  reserved, zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::wire {

inline constexpr size_t kTensorHeaderBytes = 96;
inline constexpr uint16_t kTensorVersion = 2;

enum class TensorKind : uint8_t {
  kChunk = 1,           // a chunk of a blob, in `direction`
  kNormUp = 2,          // step_message.h; up
  kStepControl = 3,     // step_message.h; down
  kMessageState = 5,    // message_state.h; both ways
  kMatrixDigest = 6,    // matrix_digest.h; both ways
  kTaken = 7,           // the next stage took an activation of a forward-only pass; up; no body
  kReplicaMessage = 8,  // a chunk of a message between replicas (transport/replicas); both ways
  kSampleRound = 9,     // sample_messages.h; down
  kSampledTokens = 10,  // sample_messages.h; up
};

// The fields of the table above.
struct TensorHeader {
  TensorKind kind = TensorKind::kChunk;
  bool validation = false;
  bool clean = false;     // only with `validation`: the pass sends fp32 tensors
  bool sampling = false;  // never with `validation`
  uint32_t number = 0;    // only with `sampling`
  Stamp stamp;
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

void EncodeTensorHeader(const TensorHeader& header, std::span<std::byte, kTensorHeaderBytes> out);
// Decodes the first 96 bytes of `bytes`; more may follow. Checks only the form: magic, version,
// kind, direction, chunk < chunks, consistent ranges. The caller checks whether the run expects
// such a message. kUnimplemented: another version. kInvalidArgument: any other fault.
StatusOr<TensorHeader> DecodeTensorHeader(std::span<const std::byte> bytes);

}  // namespace longhaul::wire
