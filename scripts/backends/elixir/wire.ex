defmodule CpLoop.Wire do
  @moduledoc """
  Records, one per line. Nested members keep their order, so that a model reads schemas and arguments
  as they were written.
  """

  # The exit statuses of errors; all others have 1.
  @statuses ~w(E_USAGE 2 E_VALIDATION 2 E_NOT_FOUND 3 E_AUTH 4 E_FORBIDDEN 4 E_CONFIG 4 E_CONFIRMATION_REQUIRED 5
               E_CONFLICT 6 E_NETWORK 7 E_RATE_LIMITED 7 E_SERVER 7 E_TIMEOUT 8 E_HUMAN_REQUIRED 9
               E_BUDGET_EXHAUSTED 9 E_INTERRUPTED 130)
            |> Enum.chunk_every(2)
            |> Map.new(fn [code, status] -> {code, String.to_integer(status)} end)

  @doc "The members of a record; nil if the line is not a record."
  def decode(line) do
    {members} = :jiffy.decode(line, [:use_nil])
    Map.new(members)
  rescue
    _ -> nil
  end

  @doc "A record that is followed by others."
  def open(type, data), do: encode(record(true, type) ++ [data: data])

  @doc "An error that is followed by other records."
  def failure(error), do: encode(record(false, "error") ++ [error: ordered(error)])

  @doc "The line that closes a stream."
  def closing(data), do: encode(record(true, "summary") ++ [data: data, meta: meta()])

  @doc "The line that closes a stream with an error."
  def closing(type, error), do: encode(record(false, type) ++ [error: ordered(error), meta: meta()])

  @doc "An error of this program."
  def error(code, message, hint) do
    details = {[backend: "elixir", hint: hint]}
    %{"code" => code, "message" => message, "details" => details, "retryable" => code == "E_INTERRUPTED"}
  end

  @doc "The exit status of an error code."
  def status(code), do: Map.get(@statuses, code, 1)

  defp record(ok, type), do: [ok: ok, schema_version: "1.0", type: type]

  # The code comes first, as in all records.
  defp ordered(error), do: {for(name <- ~w(code message details retryable), do: {name, error[name]})}

  defp meta do
    {duration, _} = :erlang.statistics(:wall_clock)
    %{duration_ms: duration}
  end

  defp encode(members), do: [:jiffy.encode({members}, [:use_nil]), ?\n]
end
