#include "coordinator/rpc/intake.h"

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "base/address.h"
#include "base/printable.h"
#include "proto/rpc/channel.h"

namespace longhaul::coordinator {
namespace {

Status TooMany(std::string_view what, size_t most, size_t came) {
  return InvalidArgument("expected at most {} {}, got {}", most, what, came);
}

void Tidy(std::string* text, size_t limit) {
  *text = Printable(*text, limit);
}

// Checks the address of a worker's relay. Other workers get it with '#' and a ticket behind it
// (transport/relay/ticket.h), and commands print it, so it must have neither '#' nor control
// characters.
Status CheckRelayAddress(const std::string& address) {
  const StatusOr<HostPort> parsed = ParseHostPort(address);
  if (parsed.ok() && parsed->port != 0 && address.find('#') == std::string::npos &&
      address == Printable(address, kMaxHelloTextBytes)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "expected host:port as the address of a worker's relay, got '{}'; start the "
      "worker with --relay-advertise host:port, where others reach the relay",
      Printable(address, kMaxHelloTextBytes));
}

}  // namespace

Status AdmitHello(v1::Hello* hello) {
  if (hello->devices_size() > kMaxDevices) {
    return TooMany("devices in a hello", kMaxDevices, static_cast<size_t>(hello->devices_size()));
  }
  if (hello->endpoints_size() > kMaxEndpoints) {
    return TooMany("data endpoints in a hello", kMaxEndpoints,
                   static_cast<size_t>(hello->endpoints_size()));
  }
  const auto check = [](std::string_view field, const std::string& text) {
    return text.size() <= kMaxHelloTextBytes ? absl::OkStatus()
                                             : TooMany(fmt::format("bytes as a hello's {}", field),
                                                       kMaxHelloTextBytes, text.size());
  };
  LH_RETURN_IF_ERROR(check("worker id", hello->worker_id()));
  LH_RETURN_IF_ERROR(check("incarnation", hello->incarnation()));
  LH_RETURN_IF_ERROR(check("name", hello->name()));
  LH_RETURN_IF_ERROR(check("version", hello->version()));
  LH_RETURN_IF_ERROR(check("run", hello->run_id()));
  LH_RETURN_IF_ERROR(check("host", hello->host()));
  LH_RETURN_IF_ERROR(check("relay", hello->relay().address()));
  if (hello->has_relay()) LH_RETURN_IF_ERROR(CheckRelayAddress(hello->relay().address()));
  for (const v1::DataEndpoint& endpoint : hello->endpoints()) {
    LH_RETURN_IF_ERROR(check("transport", endpoint.transport()));
    if (endpoint.addresses_size() > kMaxDataAddresses) {
      return TooMany("addresses of a data endpoint", kMaxDataAddresses,
                     static_cast<size_t>(endpoint.addresses_size()));
    }
    for (const std::string& address : endpoint.addresses()) {
      LH_RETURN_IF_ERROR(check("data address", address));
    }
  }
  for (v1::Device& device : *hello->mutable_devices()) {
    LH_RETURN_IF_ERROR(check("device", device.name()));
    LH_RETURN_IF_ERROR(check("device", device.kind()));
    Tidy(device.mutable_name(), kMaxHelloTextBytes);
    Tidy(device.mutable_kind(), kMaxHelloTextBytes);
  }
  Tidy(hello->mutable_version(), kMaxHelloTextBytes);
  Tidy(hello->mutable_host(), kMaxHelloTextBytes);
  Tidy(hello->mutable_restart_cause(), kMaxLineBytes);
  return absl::OkStatus();
}

Status AdmitReport(v1::WorkerMessage* message) {
  // Before anything else reads it: the limits bound what one worker can make the coordinator keep.
  const size_t limit = message->has_trace() ? kMaxTraceBytes : kMaxReportBytes;
  if (const size_t bytes = message->ByteSizeLong(); bytes > limit) {
    return TooMany("bytes in a worker's message", limit, bytes);
  }
  if (const int steps = message->trace().steps_size(); steps > kMaxTraceSteps) {
    return TooMany("steps in a trace", kMaxTraceSteps, static_cast<size_t>(steps));
  }
  if (message->has_log()) {
    Tidy(message->mutable_log()->mutable_text(), kMaxLineBytes);
    Tidy(message->mutable_log()->mutable_level(), 16);
  }
  if (message->has_error()) Tidy(message->mutable_error()->mutable_message(), kMaxLineBytes);
  if (message->has_shard()) Tidy(message->mutable_shard()->mutable_problem(), kMaxLineBytes);
  if (message->has_heartbeat() && message->heartbeat().has_at_hand()) {
    Tidy(message->mutable_heartbeat()->mutable_at_hand()->mutable_doing(), kMaxHelloTextBytes);
  }
  return absl::OkStatus();
}

Status AdmitSubmit(const v1::SubmitRequest& request) {
  if (request.run_yaml().size() > kMaxRunFileBytes) {
    return TooMany("bytes in a run file", kMaxRunFileBytes, request.run_yaml().size());
  }
  if (request.file_name().size() > kMaxNameBytes) {
    return TooMany("bytes in the run file's name", kMaxNameBytes, request.file_name().size());
  }
  if (request.overrides_size() > kMaxOverrides) {
    return TooMany("--set", kMaxOverrides, static_cast<size_t>(request.overrides_size()));
  }
  if (request.data_files_size() > kMaxDataFiles) {
    return TooMany("data files (put several texts into one file)", kMaxDataFiles,
                   static_cast<size_t>(request.data_files_size()));
  }
  for (const v1::DataFile& file : request.data_files()) {
    if (file.name().size() > kMaxNameBytes) {
      return TooMany("bytes in a data file's name", kMaxNameBytes, file.name().size());
    }
  }
  if (request.has_assumed_line_bits_per_second() &&
      (request.assumed_line_bits_per_second() == 0 ||
       request.assumed_line_bits_per_second() > kMaxAssumedBitsPerSecond)) {
    return InvalidArgument("expected an assumed rate of 1 to {} bits a second, got {}",
                           kMaxAssumedBitsPerSecond, request.assumed_line_bits_per_second());
  }
  // Negated, so that NaN is refused.
  if (request.has_assumed_delay_seconds() &&
      !(request.assumed_delay_seconds() >= 0 &&
        request.assumed_delay_seconds() <= kMaxAssumedDelaySeconds)) {
    return InvalidArgument("expected an assumed delay of 0 to {} seconds, got {}",
                           kMaxAssumedDelaySeconds, request.assumed_delay_seconds());
  }
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
