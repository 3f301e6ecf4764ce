// `longhaul workers`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/program.h"
#include "cli/table.h"
#include "run/kinds/transports.h"
#include "run/plan/plan.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::cli {
namespace {

std::string AddressText(const v1::WorkerStatus& worker) {
  std::string out;
  for (const v1::DataEndpoint& endpoint : worker.endpoints()) {
    if (!ListensAtAnAddress(endpoint.transport())) continue;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", endpoint.transport());
    for (const std::string& address : endpoint.addresses()) out += " " + address;
  }
  return out;
}

std::string DeviceText(const v1::WorkerStatus& worker) {
  std::string out;
  for (const v1::Device& device : worker.devices()) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", device.kind());
    if (device.cores() > 0) out += fmt::format(" x{}", device.cores());
    if (!device.name().empty()) out += fmt::format(" ({})", device.name());
  }
  return out;
}

// How many others it can talk to, or whom it cannot.
std::string ReachText(const v1::WorkerStatus& worker) {
  std::string out;
  for (const v1::UnreachableWorker& other : worker.cannot_talk_to()) {
    out += fmt::format("{}{} ({})", out.empty() ? "not " : ", ", other.worker(), other.transport());
  }
  if (!out.empty() || worker.can_talk_to() == 0) return out;
  return fmt::format("{}", worker.can_talk_to());
}

// Each pair once, with the reason.
void PrintUnreachable(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  std::set<std::string> said;
  for (const v1::WorkerStatus& worker : reply.workers()) {
    for (const v1::UnreachableWorker& other : worker.cannot_talk_to()) {
      if (!said.insert(other.transport() + " " + other.problem()).second) continue;
      terminal.out << fmt::format("{}{} and {} cannot talk over {}: {}\n",
                                  said.size() == 1 ? "\n" : "", Printable(worker.name()),
                                  Printable(other.worker()), Printable(other.transport()),
                                  Printable(other.problem()));
    }
  }
}

// No pause is as long, so the worker is evicted: it has erred or lied in a run that verifies.
bool IsEvicted(const v1::WorkerStatus& worker) {
  return worker.left_out_seconds() > absl::ToDoubleSeconds(absl::Hours(24 * 365));
}

void PrintLeftOut(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  for (const v1::WorkerStatus& worker : reply.workers()) {
    if (IsEvicted(worker)) {
      terminal.out << fmt::format(
          "\n{} is evicted, until the coordinator is restarted: events of the kind verify say "
          "why\n",
          Printable(worker.name()));
      continue;
    }
    if (!(worker.left_out_seconds() > 0)) continue;
    terminal.out << fmt::format(
        "\n{} is left out of runs for {} more: {}\n", Printable(worker.name()),
        longhaul::FormatDuration(absl::Seconds(worker.left_out_seconds())),
        worker.losses() > 1 ? fmt::format("it was lost {} times in a row", worker.losses())
                            : "it was lost");
  }
}

std::string MemoryText(const v1::WorkerStatus& worker) {
  double bytes = 0;
  for (const v1::Device& device : worker.devices()) {
    bytes += static_cast<double>(device.memory_bytes());
  }
  return fmt::format("{} of {}", FormatBytes(static_cast<double>(worker.memory_used_bytes())),
                     FormatBytes(bytes));
}

void PrintLinks(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  Table table({{"FROM"},
               {"TO"},
               {"TRANSPORT"},
               {"GOODPUT", Align::kRight},
               {"ROUND TRIP", Align::kRight},
               {"MEASURED", Align::kRight}});
  for (const v1::MeasuredLink& link : reply.links()) {
    table.AddRow({link.from_worker(), link.to_worker(), link.transport(),
                  link.goodput_bits_per_second() > 0
                      ? FormatBitsPerSecond(link.goodput_bits_per_second())
                      : "-",
                  SecondsText(link.round_trip_seconds()),
                  longhaul::FormatDuration(absl::Seconds(link.age_seconds())) + " ago"});
  }
  terminal.out << '\n';
  table.Print(terminal);
}

void PrintRelays(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  if (reply.relays().empty()) return;
  Table table({{"RELAY OF"}, {"REACHED AT"}, {"LINKS (FIRST CHOICE)", Align::kRight}});
  for (const v1::RelayStatus& relay : reply.relays()) {
    const bool at_coordinator = relay.address().starts_with(':');
    table.AddRow({relay.name(), (at_coordinator ? "the coordinator's host" : "") + relay.address(),
                  fmt::format("{}", relay.edges())});
  }
  terminal.out << '\n';
  table.Print(terminal);
}

// Each row one worker, each column one that it sends to: goodput, and the round trip.
void PrintMatrix(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  std::map<std::pair<std::string, std::string>, std::string> known;
  for (const v1::MeasuredLink& link : reply.links()) {
    const double rate = link.goodput_bits_per_second();
    known[{link.from_worker(), link.to_worker()}] =
        fmt::format("{}{}", rate > 0 ? FormatBitsPerSecond(rate) + ", " : "",
                    SecondsText(link.round_trip_seconds()));
  }
  std::vector<Column> columns = {{"FROM / TO"}};
  for (const v1::WorkerStatus& worker : reply.workers()) {
    columns.push_back({Printable(worker.name()), Align::kRight});
  }
  Table table(columns);
  for (const v1::WorkerStatus& from : reply.workers()) {
    std::vector<TableCell> row = {from.name()};
    for (const v1::WorkerStatus& to : reply.workers()) {
      row.emplace_back(known[{from.name(), to.name()}]);
    }
    table.AddRow(std::move(row));
  }
  table.Print(terminal);
}

// Stages whose run has ended its epoch, and what they keep of their workers' memory.
void PrintResidents(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  Table table({{"WORKER"}, {"KEEPS A STAGE OF"}, {"LAYERS"}, {"MEMORY", Align::kRight}});
  for (const v1::WorkerStatus& worker : reply.workers()) {
    if (!worker.has_resident()) continue;
    const v1::Resident& resident = worker.resident();
    table.AddRow({worker.name(), resident.run_id(),
                  fmt::format("{} from {} on", resident.layers(), resident.first_layer()),
                  FormatBytes(static_cast<double>(resident.memory_bytes()))});
  }
  if (table.empty()) return;
  terminal.out << '\n';
  table.Print(terminal);
}

void PrintLayers(const Terminal& terminal, const v1::ListWorkersReply& reply) {
  Table table({{"WORKER"},
               {"LAYERS OF"},
               {"THREADS", Align::kRight},
               {"FORWARD", Align::kRight},
               {"BACKWARD", Align::kRight},
               {"MEASURED", Align::kRight}});
  for (const v1::WorkerStatus& worker : reply.workers()) {
    if (!worker.has_measured_layers()) continue;
    const v1::MeasuredLayers& layers = worker.measured_layers();
    table.AddRow({worker.name(), layers.model(), fmt::format("{}", layers.times().threads()),
                  SecondsText(layers.times().block_forward()),
                  SecondsText(layers.times().block_backward()),
                  longhaul::FormatDuration(absl::Seconds(layers.age_seconds())) + " ago"});
  }
  if (table.empty()) return;
  terminal.out << '\n';
  table.Print(terminal);
}

StatusOr<int> ListWorkers(Invocation& invocation, const bool& links_alone) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_ASSIGN_OR_RETURN(
      const v1::ListWorkersReply reply,
      client->Get(&v1::ControlService::Stub::ListWorkers, v1::ListWorkersRequest()));
  const Terminal& terminal = invocation.terminal();
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  if (reply.workers().empty() && terminal.out_is_terminal) {
    terminal.out << fmt::format(
        "No worker has connected yet. Start some with: longhaul-worker --coordinator {}\n",
        absl::StrJoin(client->access().addresses, ","));
    return kDone;
  }
  if (links_alone) {
    PrintMatrix(terminal, reply);
    return kDone;
  }
  Table table({{"NAME"},
               {"STATE"},
               {"RUN"},
               {"STAGE", Align::kRight},
               {"ADDRESS"},
               {"DEVICE"},
               {"MEMORY", Align::kRight},
               {"LINK"},
               {"TALKS TO"},
               {"VERSION"},
               {"HEARTBEAT", Align::kRight}});
  for (const v1::WorkerStatus& worker : reply.workers()) {
    const bool free = worker.run_id().empty();
    const TableCell state = !worker.connected()              ? TableCell("lost", Style::kRed)
                            : worker.leaves_in_seconds() > 0 ? TableCell("leaving", Style::kYellow)
                            : IsEvicted(worker)              ? TableCell("evicted", Style::kRed)
                            : worker.left_out_seconds() > 0  ? TableCell("left out", Style::kYellow)
                            : free                           ? TableCell("free", Style::kGreen)
                                                             : TableCell("busy");
    table.AddRow(
        {worker.name(), state, worker.run_id(),
         free             ? ""
         : worker.spare() ? "spare"
                          : ShortName(FromProto(worker.cell()), worker.cell().replica() > 0),
         AddressText(worker), DeviceText(worker), MemoryText(worker), worker.link_quality(),
         ReachText(worker), worker.version(),
         longhaul::FormatDuration(absl::Seconds(worker.last_heartbeat_seconds())) + " ago"});
  }
  table.Print(terminal);
  PrintUnreachable(terminal, reply);
  PrintLeftOut(terminal, reply);
  PrintRelays(terminal, reply);
  PrintResidents(terminal, reply);
  PrintLayers(terminal, reply);
  if (reply.links_size() > 0) PrintLinks(terminal, reply);
  return kDone;
}

}  // namespace

void AddWorkersCommand(Program& program) {
  const auto [command, links] = program.AddCommand(
      "workers",
      "List the workers: name, run and stage, address, device, memory, version; and what was "
      "measured of their layers and of the links between them",
      ListWorkers);
  command->add_flag("--links", *links,
                    "Show the link of each worker to each other one: goodput, where it "
                    "was measured, and round trip");
}

}  // namespace longhaul::cli
