defmodule CpLoop.Conversation do
  @moduledoc """
  A prompt and its turns. It is stored in a table, with the agent that handles it and the reason why
  the last agent failed, so that a restarted agent continues where the previous one ended.
  """

  alias CpLoop.Wire

  # The status: `:asks` (for the model), `:waits` (for results), `:over`, or `{:failed, error}`.
  defstruct [:id, :prompt, :turns, :history, status: :asks, waiting: [], results: []]

  @places %{agent: 3, reason: 4}

  @doc "Creates the table."
  def init, do: :ets.new(__MODULE__, [:named_table, :public])

  def save(conversation) do
    :ets.update_element(__MODULE__, conversation.id, {2, conversation}) ||
      :ets.insert(__MODULE__, {conversation.id, conversation, nil, nil})

    conversation
  end

  def load(id), do: :ets.lookup_element(__MODULE__, id, 2)
  def note(id, name, value), do: :ets.update_element(__MODULE__, id, {@places[name], value})
  def noted(id, name), do: :ets.lookup_element(__MODULE__, id, @places[name])
  def forget(id), do: :ets.delete(__MODULE__, id)

  @doc "The conversation for a prompt; nil if the prompt has no messages."
  def begin(id, {members}) do
    with %{"messages" => [_ | _] = turns} = prompt <- Map.new(members),
         do: %__MODULE__{id: id, prompt: prompt, turns: turns, history: prompt["history"] || 0},
         else: (_ -> nil)
  end

  def begin(_id, _data), do: nil

  @doc "True if the model is not asked any more."
  def settled?(%{status: status}), do: status not in [:asks, :waits]

  @doc "The prompt record for the next message."
  def question(%{status: :asks} = conversation) do
    asked = %{"messages" => conversation.turns, "history" => conversation.history}
    Wire.open("prompt", Map.merge(conversation.prompt, asked))
  end

  @doc "Adds the answer of the model. Its tool calls wait for results."
  def answered(%{status: :asks} = conversation, %{"content" => content} = message) do
    calls = for {call} <- message["tool_calls"] || [], do: Map.new(call)
    turns = conversation.turns ++ [%{"role" => "assistant", "content" => with_calls(content, calls)}]
    status = if calls == [], do: :over, else: :waits
    waiting = for %{"id" => id} <- calls, do: id
    %{conversation | turns: turns, history: length(turns), status: status, waiting: waiting, results: []}
  end

  @doc "Adds a tool result. After the last one the model is asked again."
  def returned(%{status: :waits} = conversation, %{"id" => id} = result) do
    results = conversation.results ++ [block_of(result)]
    conversation = %{conversation | waiting: List.delete(conversation.waiting, id), results: results}
    if conversation.waiting == [], do: next(conversation), else: conversation
  end

  defp next(conversation) do
    turn = %{"role" => "user", "content" => conversation.results}
    %{conversation | status: :asks, turns: conversation.turns ++ [turn]}
  end

  # The content of a message with its tool calls, as providers require it.
  defp with_calls(content, []), do: content
  defp with_calls("", calls), do: with_calls([], calls)
  defp with_calls(text, calls) when is_binary(text), do: with_calls([{[type: "text", text: text]}], calls)

  defp with_calls(blocks, calls) do
    if Enum.any?(blocks, fn {block} -> {"type", "tool_use"} in block end),
      do: blocks,
      else: blocks ++ for(call <- calls, do: call |> Map.take(~w(id name input)) |> Map.put("type", "tool_use"))
  end

  defp block_of(result) do
    block = %{"type" => "tool_result", "tool_use_id" => result["id"], "content" => result["content"]}
    if result["is_error"], do: Map.put(block, "is_error", true), else: block
  end
end
