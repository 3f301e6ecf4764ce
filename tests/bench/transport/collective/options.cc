#include "tests/bench/transport/collective/options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "transport/collective/member.h"

namespace longhaul::collective::bench {
namespace {

Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// "4Mi": elements.
std::optional<uint64_t> ParseCount(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const auto& [name, shift] : {std::pair("", 0), {"Ki", 10}, {"Mi", 20}, {"Gi", 30}}) {
    if (unit != name) continue;
    if (number > (uint64_t{1} << (63 - shift))) return std::nullopt;
    return number << shift;
  }
  return std::nullopt;
}

StatusOr<Variant> StartVariant(const std::string& part);

Status SetOfSwitcher(Variant* variant, std::string_view key, std::string_view value) {
  if (key == "margin") {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), variant->margin);
    if (error == std::errc() && end == value.data() + value.size() && variant->margin > -1) {
      return absl::OkStatus();
    }
    return Invalid(fmt::format("margin: expected a number above -1 (0.05), got '{}'", value));
  }
  if (key != "with") {
    return Invalid(fmt::format("a switcher has no option '{}'; it has with and margin", key));
  }
  variant->with.clear();
  for (const std::string& part : Split(value, '+')) {
    LH_ASSIGN_OR_RETURN(Variant one, StartVariant(part));
    if (one.kind != Variant::Kind::kZip && one.kind != Variant::Kind::kTaco) {
      return Invalid(fmt::format("with: expected zip or taco, with + between, got '{}'", part));
    }
    variant->with.push_back(std::move(one));
  }
  return absl::OkStatus();
}

Status Set(Variant* variant, std::string_view key, std::string_view value) {
  if (variant->kind == Variant::Kind::kSwitcher) return SetOfSwitcher(variant, key, value);
  const bool zip = variant->kind == Variant::Kind::kZip;
  const bool taco = variant->kind == Variant::Kind::kTaco;
  if (key == "piece" && (zip || taco)) {
    const auto elements = ParseCount(value);
    if (!elements) return Invalid(fmt::format("piece: expected elements (4Mi), got '{}'", value));
    (zip ? variant->zip.piece_elements : variant->taco.piece_elements) = *elements;
    return absl::OkStatus();
  }
  if (key == "over" && (zip || taco)) {
    if (value != "native" && value != "mapped") {
      return Invalid(fmt::format("over: expected native or mapped, got '{}'", value));
    }
    variant->mapped = value == "mapped";
    return absl::OkStatus();
  }
  if (zip && key == "exchange") {
    using zip::Exchange;
    for (const auto& [name, exchange] : {std::pair("static", Exchange::kStaticFirst),
                                         {"sizes", Exchange::kSizesFirst},
                                         {"bounded", Exchange::kBounded}}) {
      if (value == name) {
        variant->zip.exchange = exchange;
        return absl::OkStatus();
      }
    }
    return Invalid(fmt::format("exchange: expected static, sizes or bounded, got '{}'", value));
  }
  if (zip && key == "room") {
    double share = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), share);
    if (error != std::errc() || end != value.data() + value.size() || !(share >= 0 && share <= 1)) {
      return Invalid(fmt::format("room: expected a share of escapes from 0 to 1, got '{}'", value));
    }
    variant->zip.escape_share = share;
    return absl::OkStatus();
  }
  if (taco && key == "format") {
    using taco::Format;
    for (const auto& [name, format] :
         {std::pair("e4m3", Format::kE4m3), {"e5m2", Format::kE5m2}, {"int8", Format::kInt8}}) {
      if (value == name) {
        variant->taco.format = format;
        return absl::OkStatus();
      }
    }
    return Invalid(fmt::format("format: expected e4m3, e5m2 or int8, got '{}'", value));
  }
  if (taco && key == "block") {
    const auto block = ParseCount(value);
    if (!block || *block < 32 || *block > 512 || (*block & (*block - 1)) != 0) {
      return Invalid(fmt::format("block: expected 32, 64, 128, 256 or 512, got '{}'", value));
    }
    variant->taco.block = static_cast<uint32_t>(*block);
    return absl::OkStatus();
  }
  return Invalid(
      fmt::format("{} has no option '{}'; zip has exchange, piece, room and over, taco has "
                  "format, block, piece and over",
                  variant->text, key));
}

Status SetPair(Variant* variant, const std::string& pair) {
  const size_t equals = pair.find('=');
  if (equals == std::string::npos) {
    return Invalid(fmt::format("{}: expected key=value, got '{}'", variant->text, pair));
  }
  return Set(variant, std::string_view(pair).substr(0, equals),
             std::string_view(pair).substr(equals + 1));
}

StatusOr<Variant> StartVariant(const std::string& part) {
  Variant variant;
  const size_t colon = part.find(':');
  variant.text = part.substr(0, colon);
  if (variant.text == "native") {
    variant.kind = Variant::Kind::kNative;
  } else if (variant.text == "mapped") {
    variant.kind = Variant::Kind::kNative;
    variant.mapped = true;
  } else if (variant.text == "exact") {
    variant.kind = Variant::Kind::kExact;
  } else if (variant.text == "zip") {
    variant.kind = Variant::Kind::kZip;
  } else if (variant.text == "taco") {
    variant.kind = Variant::Kind::kTaco;
  } else if (variant.text == "switcher") {
    variant.kind = Variant::Kind::kSwitcher;
    variant.with = {{.text = "zip", .kind = Variant::Kind::kZip}};
  } else {
    return Invalid(fmt::format("expected native, exact, mapped, zip, taco or switcher, got '{}'",
                               variant.text));
  }
  if (colon != std::string::npos) {
    LH_RETURN_IF_ERROR(SetPair(&variant, part.substr(colon + 1)));
    variant.text = part;
  }
  return variant;
}

bool IsWritable(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  return ::access(folder.c_str(), W_OK) == 0 && !std::filesystem::is_directory(path);
}

// Itself, or one of a switcher's; null where none does.
const Variant* WaitsOnHost(const Variant& variant) {
  if (variant.kind == Variant::Kind::kZip) {
    const bool waits = variant.zip.exchange != zip::Exchange::kBounded && !variant.mapped;
    return waits ? &variant : nullptr;
  }
  for (const Variant& one : variant.with) {
    if (WaitsOnHost(one) != nullptr) return &one;
  }
  return nullptr;
}

Status CheckVariants(const Options& options) {
  if (std::none_of(options.variants.begin(), options.variants.end(), [](const Variant& v) {
        return v.kind == Variant::Kind::kNative && !v.mapped;
      })) {
    return Invalid("expected native among --variants: the others are held against it");
  }
  for (const Variant& variant : options.variants) {
    if (variant.mapped && !options.cuda) {
      return Invalid(fmt::format("{} needs --device cuda: it is how GPUs exchange", variant.text));
    }
  }
  if (!options.graph) return absl::OkStatus();
  if (!options.cuda) return Invalid("--graph needs --device cuda: graphs are the GPU's");
  for (const Variant& variant : options.variants) {
    if (const Variant* const waiting = WaitsOnHost(variant)) {
      return Invalid(
          fmt::format("--graph: {} waits on the host for sizes, so it cannot be recorded; use "
                      "zip:exchange=bounded",
                      waiting->text));
    }
  }
  return absl::OkStatus();
}

// Sums in place are summed again: numbers grow by the ranks' number with each call.
Status CheckInPlace(const Options& options) {
  if (!options.in_place ||
      std::find(options.operations.begin(), options.operations.end(), Op::kAllReduce) ==
          options.operations.end() ||
      options.ranks == 1) {
    return absl::OkStatus();
  }
  const double most = 100 / std::log2(static_cast<double>(options.ranks));
  const uint32_t calls = options.graph ? options.replays : options.iterations;
  if (calls <= most) return absl::OkStatus();
  return Invalid(fmt::format(
      "--in-place: {} all-reduces of {} ranks one after another leave the range of numbers; take "
      "at most {:.0f} --{}",
      calls, options.ranks, std::floor(most), options.graph ? "replays" : "iterations"));
}

}  // namespace

StatusOr<std::vector<Variant>> ParseVariants(std::string_view text) {
  std::vector<Variant> variants;
  for (const std::string& part : Split(text, ',')) {
    const bool continues =
        part.find('=') != std::string::npos && part.find(':') == std::string::npos;
    if (continues && !variants.empty()) {
      LH_RETURN_IF_ERROR(SetPair(&variants.back(), part));
      variants.back().text += "," + part;
      continue;
    }
    LH_ASSIGN_OR_RETURN(Variant variant, StartVariant(part));
    variants.push_back(std::move(variant));
  }
  std::vector<std::string> texts;
  for (Variant& variant : variants) {
    texts.push_back(variant.text);
    const auto same = std::count(texts.begin(), texts.end(), variant.text);
    if (same > 1) variant.text += fmt::format("#{}", same);
  }
  return variants;
}

StatusOr<std::vector<Op>> ParseOperations(std::string_view text) {
  const std::vector<Op> all = {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather, Op::kAllToAll};
  if (text == "all") return all;
  std::vector<Op> chosen;
  for (const std::string& part : Split(text, ',')) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](Op op) { return NameOf(op) == part; });
    if (found == all.end()) {
      return Invalid(fmt::format(
          "expected all_reduce, reduce_scatter, all_gather, all_to_all or all, got '{}'", part));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

StatusOr<Dtype> ParseDtype(std::string_view text) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    if (text == NameOf(dtype)) return dtype;
  }
  return Invalid(fmt::format("expected fp32, fp16 or bf16, got '{}'", text));
}

std::string_view NameOf(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return "all_reduce";
    case Op::kReduceScatter:
      return "reduce_scatter";
    case Op::kAllGather:
      return "all_gather";
    case Op::kAllToAll:
      return "all_to_all";
    default:
      return ToString(op);
  }
}

std::string_view NameOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "fp32";
    case Dtype::kF16:
      return "fp16";
    default:
      return ToString(dtype);
  }
}

Status Check(Options* options, bool all_operations) {
  if (options->ranks < 1 || options->ranks > kMaxRanks) {
    return Invalid(fmt::format("--ranks: expected 1 to {}, got {}", kMaxRanks, options->ranks));
  }
  if (options->min_bytes < 16 || options->min_bytes > options->max_bytes) {
    return Invalid(fmt::format("expected 16 <= --min-bytes <= --max-bytes, got {} and {}",
                               options->min_bytes, options->max_bytes));
  }
  // What ranks tell each other of a size's times is limited.
  constexpr size_t kMostTimes = 3000;
  if (options->rounds * options->variants.size() > kMostTimes) {
    return Invalid(fmt::format("expected at most {} rounds times variants", kMostTimes));
  }
  Routing& routing = options->routing;
  if (routing.exponent > 0) {
    if (routing.experts % options->ranks != 0) {
      return Invalid(fmt::format("--experts: expected a multiple of the {} ranks, got {}",
                                 options->ranks, routing.experts));
    }
    if (routing.tokens * routing.hidden > (uint64_t{1} << 31)) {
      return Invalid("expected at most 2^31 elements of a rank: --tokens times --hidden");
    }
    options->operations = {Op::kAllToAll};
  }
  auto& operations = options->operations;
  const auto to_all = std::find(operations.begin(), operations.end(), Op::kAllToAll);
  if (options->in_place && to_all != operations.end()) {
    if (!all_operations || routing.exponent > 0) {
      return Invalid("--in-place: an all-to-all has no form that works in place");
    }
    operations.erase(to_all);
  }
  for (const std::string& path : {options->csv, options->json}) {
    if (!path.empty() && !IsWritable(path)) {
      return Invalid(fmt::format("{}: expected a file in a folder that can be written", path));
    }
  }
  LH_RETURN_IF_ERROR(CheckVariants(*options));
  return CheckInPlace(*options);
}

}  // namespace longhaul::collective::bench
