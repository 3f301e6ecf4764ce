// Any bytes as the answers of a web server that a model or data set is read from: sizes, tags,
// ranges, redirects, chunks. What is taken has the size that the server named, and stays below the
// caller's limit.
//
// The input: answers, each with its size before it (u16, little-endian). Each connection gets the
// next one, the last one again and again.
#include <fmt/core.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fuzz/target.h"
#include "base/remote/store.h"
#include "tests/fuzz/local_peer.h"

namespace longhaul::remote {
namespace {

// Reads a request and says what it was told to say.
class FuzzServer {
 public:
  FuzzServer() : listener_(fuzz::ListenLocally(&port_)), thread_([this] { Serve(); }) {
    thread_.detach();  // serves as long as the process lives
  }
  uint16_t port() const { return port_; }
  void SetAnswers(std::vector<std::string> answers) {
    const std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
    next_ = 0;
  }

 private:
  std::string NextAnswer() {
    const std::lock_guard lock(mutex_);
    if (answers_.empty()) return "";
    return answers_[std::min(next_++, answers_.size() - 1)];
  }
  void Serve() {
    while (true) {
      const UniqueFd one(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!one) continue;
      std::string request;
      while (request.find("\r\n\r\n") == std::string::npos) {
        const std::string more = fuzz::ReadUntilEnd(one.get(), 1, 2'000);
        if (more.empty()) break;
        request += more;
      }
      fuzz::SendAll(one.get(), NextAnswer());
      ::shutdown(one.get(), SHUT_WR);
      // Until the client has hung up, or its last bytes would become a reset.
      (void)fuzz::ReadUntilEnd(one.get(), 1 << 20, 2'000);
    }
  }

  uint16_t port_ = 0;
  const UniqueFd listener_;
  std::mutex mutex_;  // guards the next two
  std::vector<std::string> answers_;
  size_t next_ = 0;
  std::thread thread_;
};

Options FuzzOptions() {
  Options options;
  options.hosts = http::HostRules::Trusting();
  options.hosts.environment_proxy = false;
  options.patience.attempts = 2;
  options.patience.sleep = [](absl::Duration) {};
  options.parallel = 1;
  options.part_bytes = 16;
  return options;
}

// Returns whether anything could be read.
bool ReadFrom(uint16_t port) {
  static const Store store(Settings{}, FuzzOptions());
  const auto object = ParseAddress(fmt::format("http://127.0.0.1:{}/a.bin", port)).value();
  const http::Call call{.deadline = Deadline::After(absl::Seconds(10))};
  constexpr uint64_t kLimit = 4096;
  const auto version = store.Look(object, call);
  bool taken = version.ok();
  if (version.ok() && version->bytes <= kLimit) {
    uint64_t next = 0;
    const Status read = store.Read(
        object, *version, 0, version->bytes,
        [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
          if (offset != next || bytes.size() > version->bytes - next) std::abort();
          next += bytes.size();
          return absl::OkStatus();
        },
        call);
    if (read.ok() && next != version->bytes) std::abort();
  }
  const auto whole = store.ReadAll(object, kLimit, call);
  if (whole.ok() && whole->size() > kLimit) std::abort();
  return taken || whole.ok();
}

}  // namespace
}  // namespace longhaul::remote

LH_FUZZ_TARGET(http_answers) {
  using namespace longhaul::remote;  // NOLINT(google-build-using-namespace)
  static FuzzServer& server = *new FuzzServer();
  std::vector<std::string> answers;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (rest.size() >= 2 && answers.size() < 8) {
    const size_t bytes = static_cast<uint8_t>(rest[0]) | size_t{static_cast<uint8_t>(rest[1])} << 8;
    answers.emplace_back(rest.substr(2, bytes));
    rest.remove_prefix(2 + answers.back().size());
  }
  if (answers.empty()) return false;
  server.SetAnswers(std::move(answers));
  return ReadFrom(server.port());
}
