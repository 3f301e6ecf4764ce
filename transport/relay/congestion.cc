#include "transport/relay/congestion.h"

#include <linux/tcp.h>  // a longer tcp_info than that of netinet/tcp.h
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace longhaul::relay {
namespace {

// As many as Cubic sends over a line of 50 ms and 0.1 % of losses in 0.1 s.
constexpr size_t kBetweenSamples = 128 << 10;
// The round trip may fall below kLongRoundTrip only, so a short line stays short.
constexpr size_t kBetweenSamplesOfShortLines = 8 << 20;
// Round trips differ by so much though nothing queues.
constexpr absl::Duration kJitter = absl::Milliseconds(5);

bool Lists(const std::string& names, std::string_view name) {
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    if (word == name) return true;
  }
  return false;
}

Status NotLet(std::string_view name, std::string_view why) {
  return FailedPrecondition(
      "{}; to allow it: modprobe tcp_{}; sysctl net.ipv4.tcp_allowed_congestion_control=\"reno "
      "cubic {}\"",
      why, name, name);
}

}  // namespace

StatusOr<LineSample> SampleLine(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return FromErrno("cannot ask for TCP_INFO", errno);
  }
  // The peer says which segments it got twice, as with a probe of the kernel after a pause.
  const uint64_t resent = info.tcpi_total_retrans, in_vain = info.tcpi_dsack_dups;
  return LineSample{.segments_sent = info.tcpi_data_segs_out,
                    .segments_resent = resent - std::min(resent, in_vain),
                    .round_trip = absl::Microseconds(info.tcpi_rtt),
                    .shortest_round_trip = absl::Microseconds(info.tcpi_min_rtt)};
}

size_t LossWatch::bytes_to_next_sample() const {
  return decided_ || shortest_round_trip_ < kLongRoundTrip ? kBetweenSamplesOfShortLines
                                                           : kBetweenSamples;
}

bool LossWatch::Take(const LineSample& sample) {
  const bool lost = sample.segments_resent > resent_;
  resent_ = std::max(resent_, sample.segments_resent);
  shortest_round_trip_ = sample.shortest_round_trip;
  if (decided_ || shortest_round_trip_ < kLongRoundTrip) return false;
  const bool queues = sample.round_trip > 1.25 * shortest_round_trip_ + kJitter;
  if (!lost || queues) return false;
  const auto within = [&](const std::optional<uint64_t>& loss, uint64_t segments) {
    return loss && sample.segments_sent - *loss <= segments;
  };
  decided_ = within(last_loss_, kSegmentsOfTwo) || within(loss_before_, kSegmentsOfThree);
  loss_before_ = std::exchange(last_loss_, sample.segments_sent);
  return decided_;
}

std::optional<std::string> AllowedCongestionControls() {
  StatusOr<std::string> names = ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control", 4096);
  if (!names.ok()) return std::nullopt;
  return *std::move(names);
}

Status UseCongestionControl(int fd, std::string_view name,
                            const std::optional<std::string>& allowed) {
  std::array<char, 32> now{};
  socklen_t size = now.size() - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now.data(), &size) != 0) {
    return FromErrno("cannot ask for the congestion control", errno);
  }
  const std::string_view has(now.data());
  if (has != "cubic" && has != "reno") {
    return absl::AlreadyExistsError(fmt::format("the socket sends with {} already", has));
  }
  if (allowed && !Lists(*allowed, name)) {
    return NotLet(name, fmt::format("this machine does not allow {}", name));
  }
  if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                   static_cast<socklen_t>(name.size())) != 0) {
    return NotLet(name, fmt::format("the kernel refuses {}: {}", name, std::strerror(errno)));
  }
  return absl::OkStatus();
}

void SendingLine::Sent(int fd, size_t bytes, absl::FunctionRef<std::string()> name) {
  since_sample_ += bytes;
  if (since_sample_ < watch_.bytes_to_next_sample()) return;
  since_sample_ = 0;
  const StatusOr<LineSample> sample = SampleLine(fd);
  if (!sample.ok() || !watch_.Take(*sample)) return;
  const std::string seen = fmt::format(
      "{}: the line loses packets though it is not full ({} of {} segments at a round trip of {})",
      name(), sample->segments_resent, sample->segments_sent,
      absl::FormatDuration(sample->shortest_round_trip));
  const Status status = UseCongestionControl(fd, "bbr", AllowedCongestionControls());
  static std::atomic<bool> told{false};
  if (status.ok()) {
    LogInfo("{}; this end sends with BBR from now on", seen);
  } else if (!absl::IsAlreadyExists(status) && !told.exchange(true)) {
    LogWarning("{}; BBR would send more: {}", seen, Message(status));
  }
}

}  // namespace longhaul::relay
