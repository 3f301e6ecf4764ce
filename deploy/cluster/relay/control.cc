#include "deploy/cluster/relay/control.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "deploy/cluster/json_fields.h"

namespace longhaul::relay {

void Fields(auto&& field, MaybeConst<RelayPort> auto& port) {
  field("device", port.device);
  field("connected", port.connected);
}

void Fields(auto&& field, MaybeConst<RelayReport> auto& report) {
  field("arrived_packets", report.arrived_packets);
  field("lost_packets", report.lost_packets);
  field("overflowed_packets", report.overflowed_packets);
  field("missed_packets", report.missed_packets);
  field("refused_packets", report.refused_packets);
  field("failed_packets", report.failed_packets);
  field("held_bytes", report.held_bytes);
  field("threads", report.threads);
  field("cpu_ns", report.cpu_time);
}

namespace {

using nlohmann::json;

constexpr std::array<uint8_t, 4> kMacPrefix = {0x02, 0x6c, 0x68, 0x00};  // local, "lh"
constexpr size_t kMostText = 16 << 20;

StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) {
    return InvalidArgument(
        "{} is too long for a socket's path ({} characters at most); set "
        "XDG_RUNTIME_DIR to a shorter folder",
        path, sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Sets the time limit of the next call on `fd`.
void SetLimit(int fd, const Deadline& deadline) {
  const timeval time = absl::ToTimeval(std::max(deadline.Remaining(), absl::Milliseconds(1)));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

bool SendAll(int fd, std::string_view text, const Deadline& deadline) {
  while (!text.empty()) {
    if (deadline.Expired()) return false;
    SetLimit(fd, deadline);
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return shutdown(fd, SHUT_WR) == 0;
}

// All that comes until the other side has said everything.
std::optional<std::string> ReceiveAll(int fd, const Deadline& deadline) {
  std::string text;
  std::array<char, 65536> buffer;
  while (text.size() < kMostText && !deadline.Expired()) {
    SetLimit(fd, deadline);
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got == 0) return text;
    if (got < 0) return std::nullopt;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return std::nullopt;
}

json ConfigJson(const RelayConfig& config) {
  json paths = json::array();
  for (size_t i = 0; i < config.paths.size(); ++i) {
    const LinkQuality& quality = config.paths[i];
    if (quality.Perfect()) continue;
    json path = quality;
    path["from"] = i / config.ports.size();
    path["to"] = i % config.ports.size();
    paths.push_back(std::move(path));
  }
  return {{"ports", config.ports}, {"paths", std::move(paths)}};
}

bool Possible(const LinkQuality& quality) {
  return quality.delay >= absl::ZeroDuration() && quality.delay <= kMaxLinkDelay &&
         quality.jitter >= absl::ZeroDuration() && quality.jitter <= quality.delay &&
         quality.loss >= 0 && quality.loss < 1;
}

StatusOr<RelayConfig> ConfigFromJson(const json& document) {
  RelayConfig config;
  document.at("ports").get_to(config.ports);
  const size_t workers = config.ports.size();
  if (workers == 0 || workers > kMostPorts) {
    return InvalidArgument("expected 1 to {} ports, got {}", kMostPorts, workers);
  }
  config.paths.resize(workers * workers);
  for (const json& path : document.at("paths")) {
    const auto from = path.at("from").get<size_t>();
    const auto to = path.at("to").get<size_t>();
    const auto quality = path.get<LinkQuality>();
    if (from >= workers || to >= workers || !Possible(quality)) {
      return InvalidArgument(
          "a path from {} to {} is none of {} ports, or its values are impossible", from, to,
          workers);
    }
    config.paths[from * workers + to] = quality;
  }
  return config;
}

Request RequestFromJson(const json& document, Status* status) {
  Request request;
  if (!document.contains("config")) return request;
  StatusOr<RelayConfig> config = ConfigFromJson(document.at("config"));
  *status = config.status();
  request.configure = true;
  if (config.ok()) request.config = *std::move(config);
  return request;
}

json AnswerJson(const StatusOr<RelayReport>& report) {
  if (!report.ok()) {
    return {{"error", std::string(Message(report.status()))},
            {"code", static_cast<int>(report.status().code())}};
  }
  return *report;
}

}  // namespace

std::string MacAddress(uint32_t number) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", kMacPrefix[0], kMacPrefix[1],
                     kMacPrefix[2], kMacPrefix[3], number >> 8 & 0xff, number & 0xff);
}

uint32_t NumberOfMac(const uint8_t* address) {
  if (std::memcmp(address, kMacPrefix.data(), kMacPrefix.size()) != 0) return 0;
  return uint32_t{address[4]} << 8 | address[5];
}

std::string ToJson(const RelayConfig& config) {
  return ConfigJson(config).dump();
}

StatusOr<RelayConfig> RelayConfigFromJson(std::string_view text) {
  try {
    return ConfigFromJson(json::parse(text));
  } catch (const json::exception& error) {
    return InvalidArgument("not a relay's configuration: {}", std::string_view(error.what()));
  }
}

StatusOr<RelayReport> AskRelay(const std::string& socket_path, const RelayConfig* config,
                               Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const sockaddr_un address, Address(socket_path));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return FromErrno("cannot make a socket", errno);
  SetLimit(socket.get(), deadline);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Unavailable("the cluster's relay does not answer at {}: {}", socket_path,
                       std::strerror(errno));
  }
  json request = json::object();
  if (config != nullptr) request["config"] = ConfigJson(*config);
  std::optional<std::string> answer;
  if (SendAll(socket.get(), request.dump(), deadline)) answer = ReceiveAll(socket.get(), deadline);
  if (!answer || answer->empty()) {
    return Unavailable("the cluster's relay at {} does not answer", socket_path);
  }
  try {
    const json document = json::parse(*answer);
    if (document.contains("error")) {
      return absl::Status(static_cast<absl::StatusCode>(document.at("code").get<int>()),
                          document.at("error").get<std::string>());
    }
    return document.get<RelayReport>();
  } catch (const json::exception& error) {
    return Internal("cannot read the answer of the cluster's relay: {}",
                    std::string_view(error.what()));
  }
}

StatusOr<RelayReport> AskStartedRelay(const std::string& socket_path, const RelayConfig* config,
                                      Deadline deadline, const std::function<Status()>& check) {
  while (true) {
    StatusOr<RelayReport> answer = AskRelay(socket_path, config, deadline);
    if (!absl::IsUnavailable(answer.status())) return answer;
    LH_RETURN_IF_ERROR(check());
    if (deadline.Expired()) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

StatusOr<UniqueFd> ListenForRequests(const std::string& socket_path) {
  LH_ASSIGN_OR_RETURN(const sockaddr_un address, Address(socket_path));
  unlink(socket_path.c_str());  // of one that was killed
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(socket_path.c_str(), 0600) != 0 || listen(fd.get(), 8) != 0) {
    return FromErrno(fmt::format("cannot listen at {}", socket_path), errno);
  }
  return fd;
}

void ServeRequest(int listener, const std::function<StatusOr<RelayReport>(const Request&)>& serve,
                  absl::Duration patience) {
  const UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return;
  const std::optional<std::string> text = ReceiveAll(socket.get(), Deadline::After(patience));
  if (!text) return;
  StatusOr<RelayReport> report = RelayReport{};
  try {
    Status status;
    const Request request = RequestFromJson(json::parse(*text), &status);
    report = status.ok() ? serve(request) : StatusOr<RelayReport>(status);
  } catch (const json::exception& error) {
    report = InvalidArgument("not a request: {}", std::string_view(error.what()));
  }
  // Serving it may have taken its time, on a machine that is busy.
  SendAll(socket.get(), AnswerJson(report).dump(), Deadline::After(patience));
}

}  // namespace longhaul::relay
