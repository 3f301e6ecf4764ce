// Records what a cell (a stage of one replica) receives while it trains. Together with the cell's
// state before these steps, the recording decides everything that the cell computes, so an audit
// (worker/audit) can compute the steps again.
//
// Recorded are the blobs of training passes as they came, before they are decoded, and the step's
// messages: gradient norms, decisions, digests of a tied matrix. Validation and samples change no
// state and are left out.
//
// A recording is a sequence of messages. Each message is a tensor header (proto/wire) and its body
// of header.blob_bytes bytes. A blob is one chunk, whatever its size. Stamp and epoch are those of
// the attempt that has recorded it.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "proto/wire/tensor_header.h"

namespace longhaul::worker {

// Thread-safe. Keeps the recording in host memory until Cut.
class InputRecorder {
 public:
  // `start`: number of steps that were done before the attempt.
  explicit InputRecorder(Step start) : from_(start) {}

  // Adds a message. Sets header.blob_bytes, and makes the body the header's only chunk.
  void Add(wire::TensorHeader header, std::span<const std::byte> body);

  struct Recording {
    Step from{0};  // the steps after this one are in `bytes`
    std::vector<std::byte> bytes;
  };
  // Removes and returns the messages of all steps since the last Cut, up to and with `step`. All of
  // them must have arrived.
  Recording Cut(Step step);

 private:
  std::mutex mutex_;
  Step from_;
  std::map<Step, std::vector<std::byte>> of_;
};

struct RecordedMessage {
  wire::TensorHeader header;
  std::span<const std::byte> body;
};

// Reads a recording, which may be hostile. The result points into `bytes`. kInvalidArgument: not a
// recording.
StatusOr<std::vector<RecordedMessage>> ReadRecording(std::span<const std::byte> bytes);

}  // namespace longhaul::worker
