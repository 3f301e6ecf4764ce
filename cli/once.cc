#include "cli/once.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "base/units.h"

namespace longhaul::cli {
namespace {

constexpr size_t kIdBytes = 16;
constexpr absl::Duration kLongestPause = absl::Seconds(2);

// gRPC's words when it has no connection, and so sent nothing.
bool WasNotSent(const Status& status) {
  const std::string_view said = Message(status);
  return said.find("failed to connect to all addresses") != std::string_view::npos ||
         said.find("connections to all backends failing") != std::string_view::npos;
}

}  // namespace

std::string NewRequestId() {
  return absl::BytesToHexString(RandomBytes(kIdBytes));
}

void AddRequestId(CLI::App* command, std::string* id) {
  command
      ->add_option(
          "--request-id", *id,
          "Ask again for what a command with this id was to do, and do nothing twice; such "
          "a command prints its id when it gets no answer")
      ->type_name("ID");
}

void NoteRepeated(const Terminal& terminal, const v1::Stored& stored) {
  if (!stored.repeated()) return;
  terminal.err << "an earlier try with this request id had done it already; this is its answer"
               << std::endl;
}

bool Tries::Again(Status* status) {
  if (!absl::IsUnavailable(*status) && !absl::IsDeadlineExceeded(*status)) return false;
  if (client_.interrupt().fired()) return false;
  arrived_ = arrived_ || !WasNotSent(*status);
  // Where there is one coordinator, its address is wrong, or it is down. Of two, one is about to
  // take over.
  if (!arrived_ && client_.alone()) return false;
  if (!until_) until_ = Now() + kAskAgainFor;
  client_.LookAnew();
  const bool waits = Now() < *until_ && !client_.interrupt().WaitFor(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  if (waits) return true;
  if (!arrived_) return false;
  *status = Unavailable(
      "it is not known {}; the same command with --request-id {} asks again. The last answer: {}",
      undecided_, id_, Message(*status));
  return false;
}

}  // namespace longhaul::cli
