#include "coordinator/rpc/intake.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/printable.h"
#include "proto/rpc/channel.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {
namespace {

Status AtMost(size_t most, std::string_view what, size_t came) {
  if (came <= most) return absl::OkStatus();
  return InvalidArgument("expected at most {} {}, got {}", most, what, came);
}
Status AtMost(size_t most, std::string_view what, int came) {
  return AtMost(most, what, static_cast<size_t>(came));
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
  LH_RETURN_IF_ERROR(AtMost(kMaxDevices, "devices in a hello", hello->devices_size()));
  LH_RETURN_IF_ERROR(AtMost(kMaxEndpoints, "data endpoints in a hello", hello->endpoints_size()));
  const auto check = [](std::string_view field, const std::string& text) {
    return AtMost(kMaxHelloTextBytes, fmt::format("bytes as a hello's {}", field), text.size());
  };
  LH_RETURN_IF_ERROR(check("worker id", hello->worker_id()));
  LH_RETURN_IF_ERROR(check("incarnation", hello->incarnation()));
  LH_RETURN_IF_ERROR(check("name", hello->name()));
  LH_RETURN_IF_ERROR(check("version", hello->version()));
  LH_RETURN_IF_ERROR(check("run", hello->run_id()));
  LH_RETURN_IF_ERROR(check("host", hello->host()));
  LH_RETURN_IF_ERROR(check("relay", hello->relay().address()));
  LH_RETURN_IF_ERROR(check("leader", hello->leader_address()));
  LH_RETURN_IF_ERROR(check("tenure", hello->tenure()));
  if (hello->has_relay()) LH_RETURN_IF_ERROR(CheckRelayAddress(hello->relay().address()));
  for (const v1::DataEndpoint& endpoint : hello->endpoints()) {
    LH_RETURN_IF_ERROR(check("transport", endpoint.transport()));
    LH_RETURN_IF_ERROR(
        AtMost(kMaxDataAddresses, "addresses of a data endpoint", endpoint.addresses_size()));
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
  Tidy(hello->mutable_leader_address(), kMaxHelloTextBytes);
  Tidy(hello->mutable_restart_cause(), kMaxLineBytes);
  return absl::OkStatus();
}

Status AdmitReport(v1::WorkerMessage* message) {
  // Before anything else reads it: the limits bound what one worker can make the coordinator keep.
  const size_t limit = message->has_trace() ? kMaxTraceBytes : kMaxReportBytes;
  LH_RETURN_IF_ERROR(AtMost(limit, "bytes in a worker's message", message->ByteSizeLong()));
  // Fields that nobody knows would be kept with the others.
  message->DiscardUnknownFields();
  LH_RETURN_IF_ERROR(AtMost(kMaxTraceSteps, "steps in a trace", message->trace().steps_size()));
  if (message->has_log()) {
    Tidy(message->mutable_log()->mutable_text(), kMaxLineBytes);
    Tidy(message->mutable_log()->mutable_level(), 16);
  }
  if (message->has_error()) Tidy(message->mutable_error()->mutable_message(), kMaxLineBytes);
  if (message->has_shard()) Tidy(message->mutable_shard()->mutable_problem(), kMaxLineBytes);
  if (message->has_finding()) Tidy(message->mutable_finding()->mutable_what(), kMaxLineBytes);
  if (message->has_heartbeat() && message->heartbeat().has_at_hand()) {
    Tidy(message->mutable_heartbeat()->mutable_at_hand()->mutable_doing(), kMaxHelloTextBytes);
  }
  return absl::OkStatus();
}

Status AdmitRequestId(std::string_view id) {
  const bool plain = std::ranges::all_of(id, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (id.empty() || (plain && id.size() >= kMinRequestIdBytes && id.size() <= kMaxRequestIdBytes)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "expected {} to {} printable characters without spaces as the id of a request, got '{}'",
      kMinRequestIdBytes, kMaxRequestIdBytes, Printable(id, kMaxRequestIdBytes));
}

Status AdmitSubmit(const v1::SubmitRequest& request) {
  LH_RETURN_IF_ERROR(AdmitRequestId(request.request_id()));
  LH_RETURN_IF_ERROR(AtMost(kMaxRunFileBytes, "bytes in a run file", request.run_yaml().size()));
  LH_RETURN_IF_ERROR(
      AtMost(kMaxNameBytes, "bytes in the run file's name", request.file_name().size()));
  LH_RETURN_IF_ERROR(AtMost(kMaxOverrides, "--set", request.overrides_size()));
  LH_RETURN_IF_ERROR(AtMost(kMaxDataFiles, "data files (put several texts into one file)",
                            request.data_files_size()));
  for (const v1::DataFile& file : request.data_files()) {
    LH_RETURN_IF_ERROR(AtMost(kMaxNameBytes, "bytes in a data file's name", file.name().size()));
  }
  if (request.has_from_checkpoint()) {
    LH_RETURN_IF_ERROR(
        AtMost(kMaxNameBytes, "bytes in a folder's address", request.from_folder().size()));
    LH_RETURN_IF_ERROR(Annotate(stored::Check(request.from_checkpoint()), "the checkpoint"));
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
