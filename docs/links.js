// Pages link to examples and other files of the repository that are no pages of the book. In a checkout and on the web
// these links work as they are; in the built book they lead to the repository.
(function () {
    "use strict";
    const repository = "https://github.com/windlass-rs/windlass/blob/main/";

    // The file of the repository that a link of a page leads to; null if it is in the book. `directory` has the parts of
    // the page's directory in the book.
    function outside(directory, href) {
        if (/^([a-z]+:|\/|#)/i.test(href)) {
            return null;
        }
        const [path, anchor] = href.split("#");
        const parts = ["docs", ...directory];
        for (const part of path.split("/")) {
            if (part === "..") {
                parts.pop();
            } else if (part !== "." && part !== "") {
                parts.push(part);
            }
        }
        if (parts[0] === "docs") {
            return null;
        }
        return parts.join("/").replace(/\.html$/, ".md") + (anchor ? "#" + anchor : "");
    }

    // `path_to_root` is of mdBook: "../" for each directory between the page and the book.
    const depth = path_to_root.split("/").filter((part) => part === "..").length;
    const directory = document.location.pathname.split("/").slice(0, -1).slice(-depth || Infinity);
    for (const link of document.querySelectorAll("main a[href]")) {
        const file = outside(directory, link.getAttribute("href"));
        if (file !== null) {
            link.setAttribute("href", repository + file);
        }
    }
})();
