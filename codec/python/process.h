// A Python process that runs one codec class (deploy/codec/main.py). This process sends it a tensor
// or a body over a socket, and waits for the answer.
//
//   request = RequestHeader, then `bytes` bytes: fp32 elements to encode, or a body to decode
//   answer  = AnswerHeader, then `bytes` bytes: a body, fp32 elements, or a sentence in UTF-8
//
// The first answer comes without a request: the class has been imported, or cannot be. The Python
// process ends when the socket closes. Whatever it prints goes to standard error of this process.
//
// Threads: any; calls wait for each other. Errors: kInvalidArgument: the class refused its input
// (`decode` raised an exception). kFailedPrecondition: a person must act: the class cannot be
// imported, `encode` raised an exception, the process died, or a call took too long. Each message
// names the class. After the last two all calls return the same error.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "codec/codec.h"

namespace longhaul::codec::python {

struct ProcessOptions {
  std::vector<std::string> command;  // the interpreter, main.py, the class and its arguments
  std::string name;                  // the codec's, for messages
  absl::Duration start_limit;        // until the class has been imported
  absl::Duration call_limit;         // of one call
};

class Process {
 public:
  // Starts the process and waits until the class has been imported.
  static StatusOr<std::unique_ptr<Process>> Start(ProcessOptions options);
  // Kills the process.
  ~Process();

  // Encodes `elements` of a tensor of this shape. Writes the body to `body`, and its size to
  // *bytes. kFailedPrecondition also for a body that does not fit into `body`.
  Status Encode(std::span<const float> elements, const Shape& shape, const Context& context,
                std::span<std::byte> body, size_t* bytes);
  // Decodes `body` to the elements of a tensor of this shape.
  Status Decode(std::span<const std::byte> body, const Shape& shape, const Context& context,
                std::span<float> elements);

  pid_t pid() const { return pid_; }

 private:
  explicit Process(ProcessOptions options) : options_(std::move(options)) {}

  enum class What : uint32_t { kEncode = 1, kDecode = 2 };
  Status Call(What what, const Shape& shape, const Context& context, std::span<const std::byte> in,
              std::span<std::byte> out, size_t* bytes);
  // Reads an answer. `out`: where the bytes of a good one go.
  Status ReadAnswer(What what, Deadline deadline, std::span<std::byte> out, size_t* bytes);
  // Both move all bytes, or end the process and say why.
  Status Send(std::span<const std::byte> bytes, Deadline deadline);
  Status Receive(std::span<std::byte> bytes, Deadline deadline);
  // Waits until the socket can be read or written.
  Status Wait(int16_t events, Deadline deadline);
  // Kills the process, and keeps `why` for later calls.
  Status End(Status why);
  // Says how the process ended by itself.
  Status Died();

  const ProcessOptions options_;
  std::mutex mutex_;
  UniqueFd socket_;
  pid_t pid_ = -1;
  Status ended_;  // not OK: the process has ended, and why
};

}  // namespace longhaul::codec::python
