#include "worker/pipeline/input_recorder.h"

#include <array>
#include <utility>

namespace longhaul::worker {

void InputRecorder::Add(wire::TensorHeader header, std::span<const std::byte> body) {
  header.blob_bytes = body.size();
  header.chunk = 0;
  header.chunks = 1;
  header.chunk_offset = 0;
  std::array<std::byte, wire::kTensorHeaderBytes> encoded;
  wire::EncodeTensorHeader(header, encoded);
  const std::lock_guard lock(mutex_);
  std::vector<std::byte>& step = of_[header.step];
  step.insert(step.end(), encoded.begin(), encoded.end());
  step.insert(step.end(), body.begin(), body.end());
}

InputRecorder::Recording InputRecorder::Cut(Step step) {
  const std::lock_guard lock(mutex_);
  Recording cut{.from = std::exchange(from_, step), .bytes = {}};
  while (!of_.empty() && of_.begin()->first <= step) {
    std::vector<std::byte>& next = of_.begin()->second;
    if (cut.bytes.empty()) {
      cut.bytes = std::move(next);
    } else {
      cut.bytes.insert(cut.bytes.end(), next.begin(), next.end());
    }
    of_.erase(of_.begin());
  }
  return cut;
}

StatusOr<std::vector<RecordedMessage>> ReadRecording(std::span<const std::byte> bytes) {
  std::vector<RecordedMessage> messages;
  while (!bytes.empty()) {
    if (bytes.size() < wire::kTensorHeaderBytes) {
      return InvalidArgument("expected a message of {} bytes or more in the recording, {} are left",
                             wire::kTensorHeaderBytes, bytes.size());
    }
    LH_ASSIGN_OR_RETURN(const wire::TensorHeader header,
                        wire::DecodeTensorHeader(bytes.first(wire::kTensorHeaderBytes)));
    bytes = bytes.subspan(wire::kTensorHeaderBytes);
    if (header.blob_bytes > bytes.size() || header.chunks != 1) {
      return InvalidArgument(
          "expected a message of one chunk and of {} bytes at most in the recording, got {} chunks "
          "and {} bytes",
          bytes.size(), header.chunks, header.blob_bytes);
    }
    messages.push_back({header, bytes.first(header.blob_bytes)});
    bytes = bytes.subspan(header.blob_bytes);
  }
  return messages;
}

}  // namespace longhaul::worker
