/** The links between the slots of a card, and between the cards of an enclosure. */

const WAYS = { line: "in a line", ring: "in a ring", full: "each with each", none: "not linked" };

/** Parse the links of a slot. The word is empty for a card in no enclosure whose slots are linked each with each. */
export function linksOf(slot) {
  const [enclosure, topology, cards, position, between, slots, place] = (slot.links || "- full 1 0 full 0 0").split(" ");
  return {
    enclosure: enclosure === "-" ? "" : enclosure,
    topology,
    cards: Number(cards),
    position: Number(position),
    between,
    slots: Number(slots),
    place: Number(place),
  };
}

/** Describe how the cards of an enclosure are linked. */
export const enclosureText = ({ enclosure, topology, cards }) => `${enclosure}: ${cards} cards ${WAYS[topology]}`;
/** Describe how the slots of a card are linked. */
export const cardText = ({ between }) => (between === "none" ? "slots not linked" : `slots linked ${WAYS[between]}`);

function areNext(topology, one, other, number) {
  const apart = Math.abs(one - other);
  return topology === "full" || apart === 1 || (topology === "ring" && apart === number - 1);
}

/** Return the slots of the same host that a slot is linked to, each with a description: [slot, text]. */
export function neighbours(slot, slots) {
  const links = linksOf(slot);
  const onCard = slots.filter((one) => one.card === slot.card && one !== slot && links.between !== "none");
  const linked = onCard.filter(
    (one) => !links.slots || areNext(links.between, links.place, linksOf(one).place, links.slots),
  );
  const cards = Map.groupBy(slots, (one) => one.card);
  cards.delete(slot.card);
  const linkedCards = [...cards.values()].filter(([first]) => {
    const other = linksOf(first);
    return (
      links.enclosure !== "" &&
      other.enclosure === links.enclosure &&
      areNext(links.topology, links.position, other.position, links.cards)
    );
  });
  return [
    ...linked.map((one) => [one, "same card"]),
    ...linkedCards.flatMap((ofCard) => ofCard.map((one) => [one, `${one.card}, by enclosure ${links.enclosure}`])),
  ];
}
