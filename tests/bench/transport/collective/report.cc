#include "tests/bench/transport/collective/report.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/cuda/device.h"
#include "base/version.h"

namespace longhaul::collective::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Median, least and greatest value.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

// What a row says, once for all forms.
struct Figures {
  Spread us, faster;
  double algorithm = 0, bus = 0;  // GB/s
  double sent_share = 0;          // of the bytes that others would have got uncompressed
};
Figures FiguresOf(const Row& row) {
  Figures figures{.us = SpreadOf(row.rounds), .faster = SpreadOf(row.faster)};
  for (double* value : {&figures.us.median, &figures.us.least, &figures.us.most}) *value *= 1e6;
  if (figures.us.median > 0) {
    figures.algorithm = static_cast<double>(row.job.bytes) / figures.us.median / 1e3;
    figures.bus = figures.algorithm * row.job.bus_factor;
  }
  if (row.outcome.tensor_bytes > 0) {
    figures.sent_share =
        static_cast<double>(row.outcome.sent_bytes) / static_cast<double>(row.outcome.tensor_bytes);
  }
  return figures;
}

std::string OperationOf(const Row& row) {
  return std::string(NameOf(row.job.op)) + (row.job.counts.empty() ? "" : "_v");
}
std::string_view VerdictOf(const Row& row) {
  if (!row.outcome.refused.empty()) return "refused";
  return row.outcome.wrong == 0 ? "yes" : "NO";
}

// "64Ki", where the number is one.
std::string Short(uint64_t bytes) {
  int unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  static constexpr const char* kUnits[] = {"", "Ki", "Mi", "Gi"};
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string Topology() {
  std::string text;
  // NOLINTNEXTLINE(cert-env33-c): a fixed command; without it nothing is known
  FILE* const pipe = ::popen("nvidia-smi topo -m 2>/dev/null", "r");
  if (pipe == nullptr) return text;
  char part[4096];
  while (const size_t n = std::fread(part, 1, sizeof(part), pipe)) text.append(part, n);
  return ::pclose(pipe) == 0 ? text : "";
}

std::string Quoted(std::string text) {
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) {
    text.insert(at, 1, '"');
  }
  return '"' + text + '"';
}

}  // namespace

StatusOr<OrderedJson> DescribeMachine(const Options& options, const cuda::DeviceTable* table) {
  struct utsname name {};
  ::uname(&name);
  OrderedJson machine{{"longhaul", std::string(Version())},
                      {"system", fmt::format("{} {} {}", name.sysname, name.release, name.machine)},
                      {"cores", std::thread::hardware_concurrency()}};
  OrderedJson variables = OrderedJson::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != std::string::npos) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  machine["environment"] = variables;
  if (table == nullptr) return machine;
  OrderedJson gpus = OrderedJson::array();
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    LH_ASSIGN_OR_RETURN(const cuda::Device device, cuda::Device::Open(table, rank));
    gpus.push_back(device.Describe());
  }
  machine["gpus"] = gpus;
  machine["topology"] = Topology();
  return machine;
}

std::string TableHead(const Options& options, const std::string& native) {
  std::string text = fmt::format(
      "{} ranks ({}) of {}, {}{}, data: {}. Times are from when all ranks are let go until the "
      "slowest one's queue is done, over the {} of a batch; medians of {} rounds. bytes: of a "
      "rank's largest tensor. x native: native's time over this one's, round by round.\n",
      options.ranks, options.processes ? "processes" : "threads", native, NameOf(options.dtype),
      options.in_place ? " in place" : "", options.data, options.graph ? "replays" : "calls",
      options.rounds);
  text += fmt::format(
      "{:>9}  {:<14}  {:<24}  {:>11}  {:>8}  {:>8}  {:>8}  {:<15}  {:>7}  {:>9}  {:>6}\n", "bytes",
      "operation", "variant", "us", "alg GB/s", "bus GB/s", "x native", "(least - most)", "correct",
      "error", "sent");
  return text;
}

std::string TableLine(const Row& row) {
  const Figures f = FiguresOf(row);
  const std::string front =
      fmt::format("{:>9}  {:<14}  {:<24}  ", Short(row.job.bytes), OperationOf(row), row.variant);
  if (!row.outcome.refused.empty()) return front + "refused: " + row.outcome.refused + "\n";
  std::string line = front;
  line +=
      fmt::format("{:>11.1f}  {:>8.2f}  {:>8.2f}  {:>8.3f}  {:<15}  {:>7}  {:>9}  {:>6}",
                  f.us.median, f.algorithm, f.bus, f.faster.median,
                  fmt::format("({:.3f} - {:.3f})", f.faster.least, f.faster.most), VerdictOf(row),
                  row.outcome.error == 0 ? "0" : fmt::format("{:.2e}", row.outcome.error),
                  f.sent_share == 0 ? "-" : fmt::format("{:.3f}", f.sent_share));
  if (row.outcome.wrong > 0) {
    line += fmt::format("  {} of {} elements are wrong", row.outcome.wrong, row.outcome.elements);
  }
  if (!row.job.counts.empty()) {
    line += fmt::format("  busiest rank: {:.2f} x the mean", row.job.imbalance);
  }
  return line + "\n";
}

std::string Csv(const Options& options, const std::vector<Row>& rows) {
  std::string text =
      "operation,bytes,dtype,in_place,data,ranks,graph,variant,iterations,rounds,us,us_least,"
      "us_most,algorithm_gb_per_s,bus_gb_per_s,faster,faster_least,faster_most,correct,elements,"
      "differ,wrong,error,sent_bytes,tensor_bytes,imbalance,refused\n";
  for (const Row& row : rows) {
    const Figures f = FiguresOf(row);
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{},"
        "{},{},{},{:.6g},{},{},{:.4f},{}\n",
        OperationOf(row), row.job.bytes, NameOf(options.dtype), options.in_place,
        Quoted(options.data), options.ranks, options.graph, Quoted(row.variant), row.iterations,
        row.rounds.size(), f.us.median, f.us.least, f.us.most, f.algorithm, f.bus, f.faster.median,
        f.faster.least, f.faster.most, VerdictOf(row), row.outcome.elements, row.outcome.differ,
        row.outcome.wrong, row.outcome.error, row.outcome.sent_bytes, row.outcome.tensor_bytes,
        row.job.imbalance, Quoted(row.outcome.refused));
  }
  return text;
}

OrderedJson ToJson(const Options& options, const std::vector<Row>& rows, const OrderedJson& machine,
                   const std::string& native, const OrderedJson& switchers) {
  OrderedJson list = OrderedJson::array();
  for (const Row& row : rows) {
    const Figures f = FiguresOf(row);
    OrderedJson json{{"operation", OperationOf(row)},
                     {"bytes", row.job.bytes},
                     {"variant", row.variant},
                     {"iterations", row.iterations},
                     {"us", f.us.median},
                     {"us_least", f.us.least},
                     {"us_most", f.us.most},
                     {"algorithm_gb_per_s", f.algorithm},
                     {"bus_gb_per_s", f.bus},
                     {"faster", f.faster.median},
                     {"faster_least", f.faster.least},
                     {"faster_most", f.faster.most},
                     {"correct", row.outcome.refused.empty() && row.outcome.wrong == 0},
                     {"elements", row.outcome.elements},
                     {"differ", row.outcome.differ},
                     {"wrong", row.outcome.wrong},
                     {"error", row.outcome.error},
                     {"sent_bytes", row.outcome.sent_bytes},
                     {"tensor_bytes", row.outcome.tensor_bytes},
                     {"imbalance", row.job.imbalance},
                     {"seconds_of_rounds", row.rounds}};
    if (!row.outcome.refused.empty()) json["refused"] = row.outcome.refused;
    list.push_back(std::move(json));
  }
  return {{"machine", machine},
          {"native", native},
          {"ranks", options.ranks},
          {"processes", options.processes},
          {"dtype", NameOf(options.dtype)},
          {"data", options.data},
          {"in_place", options.in_place},
          {"graph", options.graph},
          {"switchers", switchers},
          {"rows", list}};
}

}  // namespace longhaul::collective::bench
